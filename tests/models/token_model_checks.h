// What every model of tokens is checked for, whatever its class.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/models/nets/language_model.h"
#include "tessera/nn/module.h"
#include "tessera/tests/models/plain_layers.h"
#include "tessera/tests/support/close.h"

namespace tessera::testing {

// `count` tokens below `vocab`, in an order without a short period.
std::vector<std::int64_t> some_tokens(std::int64_t count, std::int64_t vocab);
Variable token_input(std::int64_t batch, std::int64_t length, std::int64_t vocab);

// Every parameter, biases and norms too, starts normal: so that no layer can be left out unseen.
void randomize(nn::Module& model, double deviation = 0.4);
std::int64_t count_elements(const nn::Module& model);
std::vector<std::string> parameter_names(const nn::Module& model);

// Mean and deviation of a parameter's values.
struct Statistics {
  double mean = 0;
  double deviation = 0;
};
Statistics statistics_of(nn::Module& model, const std::string& parameter);

// Logits are those of `plain`, sample by sample, within 1e-12.
using PlainModel = std::function<Rows(const std::int64_t* tokens, std::size_t length)>;
CloseResult equals_plain(const models::LanguageModel& model, const PlainModel& plain,
                         std::int64_t batch, std::int64_t length);
// A changed token changes its own logits, and none before it.
CloseResult is_causal(const models::LanguageModel& model);
// A sequence of max_length tokens in calls of so many with a cache gives the logits of one call.
CloseResult decodes_like_one_call(const models::LanguageModel& model,
                                  const std::vector<std::int64_t>& lengths);

// A block and its formula, which calls the block's children, add() and norms apart.
using BlockFunction = std::function<Variable(const std::vector<Variable>&)>;
struct BlockCase {
  std::vector<Shape> inputs;
  BlockFunction call;
  BlockFunction formula;
  std::vector<std::string> adding_norms;  // those that the block calls with a residual
};
// The result and the gradients of f64 inputs and of parameters are equal, bit for bit, and the
// norms named are called with two Variables.
CloseResult equals_formula(nn::Module& block, const BlockCase& c);

template <class L>
L& child(nn::Module& module, const std::string& name) {
  return dynamic_cast<L&>(module.get_submodule(name));
}

}  // namespace tessera::testing
