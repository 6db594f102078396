// hidden(): what the head of a language model computes logits from, for heads of a user's own.

#include <catch2/catch.hpp>
#include <string>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/testing.h"
#include "tessera/models/nets/gpt.h"
#include "tessera/models/nets/llama.h"
#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/models/token_model_checks.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::models {
namespace {

using testing::RankTest;
using testing::token_input;

const Variable& of_result(const Variable& hidden) { return hidden; }
const Variable& of_result(const MixtureOfExpertsBlockResult& result) { return result.hidden; }
const Variable& logits_of(const Variable& logits) { return logits; }
const Variable& logits_of(const LanguageModelResult& result) { return result.logits; }

template <class Model>
void check_head(typename Model::Options options, const std::string& head_name) {
  options.vocab_size = 13;
  options.dtype = DType::kF64;
  options.dropout = 0;
  Model model(options);
  nn::initialize(model, {.seed = 1});
  int calls = 0;
  const HookHandle counting =
      model.register_forward_hook([&](nn::Module&, const nn::VisitVariables*) { ++calls; });
  const Variable tokens = token_input(2, 5, 13);
  const NoGradGuard no_grad;
  auto& head = dynamic_cast<nn::Linear&>(model.get_submodule(head_name));
  const auto states = model.hidden(tokens);
  CHECK(calls == 1);
  CHECK(of_result(states).shape() == Shape{2, 5, options.dim});
  const auto result = model(tokens);
  CHECK(head(of_result(states)).template to_vector<double>() ==
        logits_of(result).template to_vector<double>());
  CHECK(model.options().layers == options.layers);
}

TEST_CASE("hidden states, through the head, are the logits") {
  check_head<Gpt>(gpt_preset("tiny").options, "head");
  check_head<Llama>(llama_preset("tiny").options, "head");
  check_head<MixtureOfExperts>(mixture_of_experts_preset("tiny").options, "head");
  check_head<Transformer>(transformer_preset("tiny").options, "output");
}

// A new head on a model: the mean of the hidden states, classified.
class Classifier final : public nn::Layer<Classifier> {
 public:
  explicit Classifier(const GptOptions& options)
      : backbone_(options), head_({.in = options.dim, .out = 3, .dtype = options.dtype}) {
    register_module("backbone", backbone_);
    register_module("head", head_);
  }
  Variable forward(const Variable& tokens) { return head_(mean(backbone_.hidden(tokens), {1})); }
  Gpt& backbone() { return backbone_; }

 private:
  Gpt backbone_;
  nn::Linear head_;
};

TESSERA_RANK_TEST("a new head on hidden states trains sharded as it does unsharded", "[models]") {
  const GptOptions options{.layers = 2,
                           .vocab_size = 13,
                           .max_seq_len = 5,
                           .dim = 12,
                           .heads = 2,
                           .dropout = 0,
                           .dtype = DType::kF64};
  Classifier plain(options), model(options);
  nn::initialize(plain, {.seed = 1});
  for (PreNormBlock& block : model.backbone().blocks())
    fsdp::fully_shard(block, {.mesh = t.world().mesh()});
  fsdp::fully_shard(model.backbone(), {.mesh = t.world().mesh()});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const Variable tokens = token_input(4, 5, 13);
  const Tensor classes = Tensor::from_vector<std::int64_t>({0, 2, 1, 1}, {4});
  nn::optim::SGD one(plain.parameters(), {.lr = 0.1, .momentum = 0.9}),
      other(model.parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 3; ++step) {
    const Variable expected = cross_entropy(plain(tokens), classes),
                   loss = cross_entropy(model(tokens), classes);
    t.check_close(loss.tensor(), expected.tensor(), {1e-12, 1e-12}, "loss");
    backward(expected);
    backward(loss);
    // The model's own head takes no part, so its gradient is absent in one and zero in the other.
    const std::string report =
        fsdp::check_sharded_parity(plain, model, {.tolerance = 1e-12, .gradients = false});
    t.check(report.empty(), "step {}: {}", step, report);
    one.step();
    other.step();
    one.zero_grad();
    other.zero_grad();
  }
}

}  // namespace
}  // namespace tessera::models
