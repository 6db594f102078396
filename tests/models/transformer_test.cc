// The small Transformer's results: values against plain loops, derivatives, tying, dropout,
// recomputation, dtypes.

#include "tessera/models/nets/transformer.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <tuple>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/models/plain_layers.h"
#include "tessera/tests/models/token_model_checks.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::models {
namespace {

using testing::all_equal;
using Names = std::vector<std::string>;

Names names(Transformer& model) {
  Names out;
  for (const auto& [name, parameter] : model.named_parameters()) out.push_back(name);
  return out;
}

std::vector<std::int64_t> some_tokens(std::int64_t count, std::int64_t vocab) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back((i * i + 3 * i + 1) % vocab);
  return out;
}

Variable tokens(std::int64_t batch, std::int64_t length, std::int64_t vocab = 8) {
  return Variable(Tensor::from_vector(some_tokens(batch * length, vocab), {batch, length}));
}

ModelArgs tiny() {
  return {.layers = 1,
          .vocab_size = 5,
          .max_seq_len = 4,
          .dim = 4,
          .heads = 2,
          .dropout = 0,
          .dtype = DType::kF64};
}

TEST_CASE("logits are those of plain loops") {
  const bool causal = GENERATE(false, true);
  const bool tied = GENERATE(false, true);
  const std::int64_t length = GENERATE(1, 7, 9);
  Transformer model({.layers = 3,
                     .vocab_size = 11,
                     .max_seq_len = 9,
                     .dim = 12,
                     .heads = 3,
                     .use_attn_mask = causal,
                     .weight_tying = tied,
                     .dtype = DType::kF64});
  nn::initialize(model, {.seed = 3});
  model.eval();
  const Variable in = tokens(3, length, 11);
  const Tensor logits = model(in).tensor();
  REQUIRE(logits.shape() == Shape{3, length, 11});
  const std::vector<double> actual = logits.to_vector<double>();
  const std::vector<double> expected = testing::plain_transformer(
      model, some_tokens(3 * length, 11), static_cast<std::size_t>(length));
  double worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    worst = std::max(worst, std::abs(actual[i] - expected[i]));
  }
  CHECK(worst < 1e-12);
  CHECK(all_equal(model(in.tensor()).tensor(), logits));
}

TEST_CASE("a causal model's logits do not depend on later tokens") {
  const bool causal = GENERATE(false, true);
  Transformer model({.use_attn_mask = causal});
  nn::initialize(model, {.seed = 3});
  model.eval();
  const Variable in = tokens(1, 6);
  const Tensor before = model(in).tensor();
  fill_(in.tensor().select(1, 5), 7);
  const Tensor after = model(in).tensor();
  CHECK(bool(all_equal(before.slice(1, 0, 5), after.slice(1, 0, 5))) == causal);
  CHECK_FALSE(all_equal(before, after));
}

TEST_CASE("the derivative by every parameter is right") {
  ModelArgs args = tiny();
  std::tie(args.weight_tying, args.checkpoint_activations, args.dropout) = GENERATE(
      table<bool, bool, double>({{false, false, 0}, {true, false, 0.3}, {true, true, 0.3}}));
  Transformer model(args);
  nn::initialize(model, {.seed = 3});
  const Variable in = tokens(2, 4, 5);
  const Tensor targets = Tensor::from_vector(some_tokens(8, 5), {8});
  const GradCheckResult result = testing::parameter_grad_check(model, [&] {
    const random::StepScope step({.seed = 1, .step = 7});
    return cross_entropy(flatten(model(in), 0, 1), targets);
  });
  INFO(result.message);
  CHECK(result.passed);
}

TEST_CASE("a tied weight's gradient is the sum of its uses'") {
  ModelArgs args = tiny();
  Transformer tied(args);
  args.weight_tying = false;
  Transformer untied(args);
  nn::initialize(tied, {.seed = 3});
  nn::initialize(untied, {.seed = 3});
  const auto value = [](Transformer& model, const std::string& name) {
    return model.get_parameter(name).local().tensor();
  };
  copy_(value(untied, "output.weight"), value(tied, "tok_embeddings.weight"));
  CHECK(tied.get_parameter("output.weight").same_as(tied.get_parameter("tok_embeddings.weight")));
  const Variable in = tokens(2, 3, 5);
  CHECK(all_equal(tied(in).tensor(), untied(in).tensor()));
  backward(sum(square(tied(in))));
  backward(sum(square(untied(in))));
  const Tensor sum_of_uses = add(untied.get_parameter("tok_embeddings.weight").grad(),
                                 untied.get_parameter("output.weight").grad());
  CHECK(testing::all_close(tied.get_parameter("tok_embeddings.weight").grad(), sum_of_uses,
                           {.rtol = 1e-12, .atol = 1e-12}));
}

TEST_CASE("recompute changes neither names nor bits, also with dropout") {
  Transformer plain, saving({.checkpoint_activations = true});
  nn::initialize(plain, {.seed = 3});
  nn::copy_state(plain, saving);
  CHECK(names(plain) == names(saving));
  int calls = 0;
  const HookHandle hook =
      saving.get_submodule("layers.1.attention")
          .register_forward_pre_hook([&](nn::Module&, const nn::VisitVariables&) { ++calls; });
  const auto run = [](Transformer& model) {
    const random::StepScope step({.seed = 1, .step = 7});
    const Variable logits = model(tokens(2, 16));
    backward(sum(square(logits)));
    return logits.tensor();
  };
  CHECK(all_equal(run(plain), run(saving)));
  CHECK(calls == 2);
  for (const auto& [name, parameter] : plain.named_parameters()) {
    INFO(name);
    CHECK(all_equal(parameter.grad(), saving.get_parameter(name).grad()));
  }
}

TEST_CASE("dropout is off in evaluation, and follows the step and the sample in training") {
  Transformer model({.dropout = 0.5}), without({.dropout = 0});
  nn::initialize(model, {.seed = 3});
  nn::copy_state(model, without);
  const Variable in = tokens(4, 8);
  const auto at_step = [&](std::uint64_t number) {
    const random::StepScope step({.seed = 1, .step = number});
    return model(in).tensor();
  };
  const Tensor first = at_step(0);
  CHECK(all_equal(first, at_step(0)));
  CHECK_FALSE(all_equal(first, at_step(1)));
  CHECK_FALSE(all_equal(first, without(in).tensor()));
  const random::StepScope second_half({.seed = 1, .step = 0, .first_sample = 2});
  // Other elements dropped would be a difference of about 1. Products of fewer rows may have other
  // bits with AVX-512.
  CHECK(testing::all_close(model(in.tensor().slice(0, 2, 4)).tensor(), first.slice(0, 2, 4)));
  model.eval();
  CHECK(all_equal(at_step(0), without(in).tensor()));
  model.train();
  CHECK(all_equal(first, at_step(0)));
}

TEST_CASE("dropout is applied to attention's probabilities too") {
  Attention attention({.dropout = 1});
  nn::initialize(attention, {.seed = 3});
  // With every other contribution zero, the rest of the sum is zero.
  static_cast<nn::Dropout&>(attention.get_submodule("resid_dropout")).eval();
  const Variable x(ones({2, 3, 16}));
  const random::StepScope step({.seed = 1, .step = 0});
  CHECK(all_equal(attention(x).tensor(), zeros({2, 3, 16})));
  attention.eval();
  CHECK_FALSE(all_equal(attention(x).tensor(), zeros({2, 3, 16})));
}

TEST_CASE("logits have the dtype of the layers") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16, DType::kF32, DType::kF64);
  Transformer model({.dropout = 0, .dtype = dtype});
  nn::initialize(model, {.seed = 3});
  const Variable logits = model(tokens(2, 5));
  CHECK(logits.dtype() == dtype);
  backward(sum(logits));
  for (const nn::Parameter& parameter : model.parameters()) {
    CHECK(parameter.grad().dtype() == dtype);
  }
}

TEST_CASE("a batch may have no rows, and the null device computes shapes") {
  Transformer model;
  nn::initialize(model, {.seed = 3});
  CHECK(model(tokens(0, 5)).shape() == Shape{0, 5, 8});
  Transformer planned({.checkpoint_activations = true});
  nn::initialize(planned, {.device = kNull});
  const Tensor ids = Tensor::empty({2, 16}, {.dtype = DType::kI64, .device = kNull});
  const random::StepScope step({.seed = 1, .step = 0});
  const Variable logits = planned(ids);
  CHECK(logits.shape() == Shape{2, 16, 8});
  backward(sum(logits));
  CHECK(planned.get_parameter("tok_embeddings.weight").grad().shape() == Shape{8, 16});
}

TEST_CASE("a Transformer's block has the bits of its formula, with sums and norms apart") {
  Transformer model(tiny());
  testing::randomize(model);
  auto& block = testing::child<TransformerBlock>(model, "layers.0");
  const auto norm = [&](const char* name, const Variable& x) {
    return testing::child<nn::LayerNorm>(block, name)(x);
  };
  CHECK(testing::equals_formula(
      block,
      {.inputs = {{2, 3, 4}},
       .call = [&](const auto& in) { return block(in[0]); },
       .formula =
           [&](const auto& in) {
             auto& attention = testing::child<Attention>(block, "attention");
             const Variable h = in[0] + attention(norm("attention_norm", in[0]), AttentionCall{});
             return h + testing::child<FeedForward>(block, "feed_forward")(norm("ffn_norm", h));
           },
       .adding_norms = {"ffn_norm"}}));
}

}  // namespace
}  // namespace tessera::models
