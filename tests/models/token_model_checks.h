// Checks for every token model.
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

// Draws every parameter, also biases and norms, from a normal distribution, so that a skipped layer
// changes the result.
void randomize(nn::Module& model, double deviation = 0.4);
std::int64_t count_elements(const nn::Module& model);
std::vector<std::string> parameter_names(const nn::Module& model);

// Mean and standard deviation of a parameter's values.
struct Statistics {
  double mean = 0;
  double deviation = 0;
};
Statistics statistics_of(nn::Module& model, const std::string& parameter);

// Checks that the logits are those of `plain`, sample by sample, within 1e-12.
using PlainModel = std::function<Rows(const std::int64_t* tokens, std::size_t length)>;
CloseResult equals_plain(const models::LanguageModel& model, const PlainModel& plain,
                         std::int64_t batch, std::int64_t length);
// Checks that a changed token changes its own logits and no earlier ones.
CloseResult is_causal(const models::LanguageModel& model);
// Checks that a sequence of max_length tokens, split over calls of these lengths with a cache,
// gives the logits of one call.
CloseResult decodes_like_one_call(const models::LanguageModel& model,
                                  const std::vector<std::int64_t>& lengths);

// A block, and its formula, which calls the block's children with add() and norms separately.
using BlockFunction = std::function<Variable(const std::vector<Variable>&)>;
struct BlockCase {
  std::vector<Shape> inputs;
  BlockFunction call;
  BlockFunction formula;
  std::vector<std::string> adding_norms;  // norms that the block calls with a residual
};
// Checks that the result and the gradients of f64 inputs and parameters are bitwise equal, and that
// the named norms are called with two Variables.
CloseResult equals_formula(nn::Module& block, const BlockCase& c);

template <class L>
L& child(nn::Module& module, const std::string& name) {
  return dynamic_cast<L&>(module.get_submodule(name));
}

}  // namespace tessera::testing
