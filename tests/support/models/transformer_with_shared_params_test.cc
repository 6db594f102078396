// The encoder-decoder with shared parameters: layout, inputs, values, derivatives, buffers, batch
// norm, evaluation.

#include "tessera/tests/support/models/transformer_with_shared_params.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/models/plain.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::testing {
namespace {

using Model = TransformerWithSharedParams;
using Names = std::vector<std::string>;

void extend(Names& names, const std::string& prefix, const Names& more) {
  for (const std::string& name : more) names.push_back(prefix + name);
}

Names expected_parameters(bool add_bn) {
  const Names encoder = {"self_attn.in_proj_weight", "self_attn.in_proj_bias",
                         "self_attn.out_proj.weight", "self_attn.out_proj.bias"};
  const Names cross = {"multihead_attn.in_proj_weight", "multihead_attn.in_proj_bias",
                       "multihead_attn.out_proj.weight", "multihead_attn.out_proj.bias"};
  const Names feed_forward = {"linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias",
                              "norm1.weight",   "norm1.bias",   "norm2.weight",   "norm2.bias"};
  Names out = {"embed_tokens.weight"};
  for (const std::string layer : {"0.", "1."}) {
    extend(out, "transformer.encoder.layers." + layer, encoder);
    extend(out, "transformer.encoder.layers." + layer, feed_forward);
  }
  extend(out, "transformer.encoder.norm.", {"weight", "bias"});
  for (const std::string layer : {"0.", "1."}) {
    extend(out, "transformer.decoder.layers." + layer, encoder);
    extend(out, "transformer.decoder.layers." + layer, cross);
    extend(out, "transformer.decoder.layers." + layer, feed_forward);
    extend(out, "transformer.decoder.layers." + layer, {"norm3.weight", "norm3.bias"});
  }
  extend(out, "transformer.decoder.norm.", {"weight", "bias"});
  out.push_back("output_proj.bias");
  if (add_bn) extend(out, "bn.", {"weight", "bias"});
  return out;
}

TEST_CASE("parameters, buffers and groups are the seed's") {
  const bool add_bn = GENERATE(false, true);
  Model model({.add_bn = add_bn});
  CHECK(parameter_names(model) == expected_parameters(add_bn));
  // 4 self attentions of 4 * 16 * 17, 2 cross attentions, 4 feed-forwards, 2 * 2 + 2 * 3 + 2 norms.
  CHECK(elements(model) == 23 * 16 + 6 * 1088 + 4 * 280 + 12 * 32 + 23 + (add_bn ? 4 : 0));
  CHECK(model.get_parameter("output_proj.weight")
            .same_as(model.get_parameter("embed_tokens.weight")));
  Names buffers;
  for (const auto& [name, buffer] : model.named_buffers()) buffers.push_back(name);
  Names expected = {"vocab_bias", "long_buffer"};
  if (add_bn) extend(expected, "bn.", {"running_mean", "running_var", "num_batches_tracked"});
  CHECK(buffers == expected);
  CHECK(names_of(model, model.groups()) ==
        Names{"transformer.encoder.layers.0", "transformer.encoder.layers.1",
              "transformer.decoder.layers.0", "transformer.decoder.layers.1", ""});
  CHECK(names_of(model, model.get_ignored_modules()) == Names{"transformer"});
  CHECK(model.get_submodule("bn").type_name() == (add_bn ? "BatchNorm1d" : "Identity"));
}

TEST_CASE("inputs are rows of ids, the loss their cross entropy summed") {
  const auto model = init_model<Model>({.deterministic = true, .dtype = DType::kF64});
  const std::vector<Variable> input = model->get_input(kCpu, 3);
  REQUIRE(input.size() == 2);
  CHECK(all_equal(input[0].tensor(), arange(12).view({6, 2})));
  CHECK(all_equal(input[1].tensor(), arange(8).view({4, 2})));
  const Variable output = model->call(input);
  REQUIRE(output.shape() == Shape{4, 2, 23});
  double expected = 0;
  std::size_t target = 0;
  for (const auto& row : rows_of(output.tensor())) {
    double total = 0;
    for (const double logit : row) total += std::exp(logit);
    expected += std::log(total) - row[target++];
  }
  CHECK(model->get_loss(input, output).item<double>() == Approx(expected));
}

// The layers around the transformer, by hand.
Tensor plain_forward(Model& model, double vocab_bias, double long_buffer) {
  const auto value = [&model](const std::string& name) {
    return model.get_parameter(name).local().tensor();
  };
  const Tensor table = value("embed_tokens.weight");
  const auto embedded = [&table](std::int64_t length) {
    return table.slice(0, 0, length * 2).view({length, 2, 16});
  };
  Tensor src = add(embedded(6), vocab_bias + long_buffer), tgt = clone(embedded(4));
  for (std::int64_t channel = 0; channel < 2 && model.get_submodule("bn").type_name() != "Identity";
       ++channel) {
    const Tensor part = tgt.select(1, channel);
    const std::vector<double> values = part.to_vector<double>();
    double mean = 0, variance = 1;
    if (model.is_training()) {
      variance = 0;
      for (const double x : values) mean += x / 64;
      for (const double x : values) variance += (x - mean) * (x - mean) / 64;
    }
    copy_(part, div(sub(part, mean), std::sqrt(variance + 1e-5)));
  }
  auto& transformer = static_cast<nn::Transformer&>(model.get_submodule("transformer"));
  const Tensor y = transformer(Variable(src), Variable(tgt)).tensor();
  return add(matmul(y, table.transpose(0, 1)), value("output_proj.bias"));
}

TEST_CASE("the model is embeddings, buffers, norm, transformer and the tied projection") {
  const bool add_bn = GENERATE(false, true);
  const bool deterministic = GENERATE(false, true);
  const auto model =
      init_model<Model>({.add_bn = add_bn, .deterministic = deterministic, .dtype = DType::kF64});
  CHECK(model->is_training() == !deterministic);
  fill_(model->get_buffer("long_buffer").tensor(), 3);
  const std::vector<Variable> input = model->get_input(kCpu, 0);
  const auto at_step = [](const auto& compute) {
    const random::StepScope step({.seed = 1, .step = 0});
    return compute();
  };
  const Tensor expected = at_step([&] { return plain_forward(*model, 1, 3); });
  const Tensor actual = at_step([&] { return model->call(input).tensor(); });
  CHECK(all_close(actual, expected, {.rtol = 1e-12, .atol = 1e-12}));
}

TEST_CASE("derivatives by the parameters outside the layers are right, the tied one's too") {
  const auto model = init_model<Model>({.dtype = DType::kF64});
  for (nn::Parameter& parameter : model->parameters()) {
    parameter.set_requires_grad(!parameter.name().starts_with("transformer."));
  }
  model->get_parameter("transformer.decoder.layers.1.norm3.weight").set_requires_grad(true);
  const std::vector<Variable> input = model->get_input(kCpu, 0);
  const GradCheckResult result =
      parameter_grad_check(*model,
                           [&] {
                             const random::StepScope step({.seed = 1, .step = 0});
                             return model->get_loss(input, model->call(input));
                           },
                           {.tolerance = 1e-6});
  INFO(result.message);
  CHECK(result.passed);
}

TEST_CASE("every parameter gets a gradient, and a reference gives the same bits") {
  const auto model = init_model<Model>({.deterministic = true});
  const auto again = init_model<Model>({.deterministic = true});
  Model copied({.deterministic = true});
  nn::copy_state(*model, copied);
  const std::vector<Variable> input = model->get_input(kCpu, 0);
  const Tensor output = model->call(input).tensor();
  CHECK(all_equal(again->call(input).tensor(), output));
  CHECK(all_equal(copied.call(input).tensor(), output));
  model->run_backward(model->get_loss(input, model->call(input)));
  copied.run_backward(copied.get_loss(input, copied.call(input)));
  for (const auto& [name, parameter] : model->named_parameters()) {
    INFO(name);
    REQUIRE(parameter.grad().defined());
    CHECK(all_equal(parameter.grad(), copied.get_parameter(name).grad()));
  }
}

TEST_CASE("batch statistics run along in training, and are part of the state") {
  const auto model = init_model<Model>();
  const std::vector<Variable> input = model->get_input(kCpu, 0);
  const random::StepScope step({.seed = 1, .step = 0});
  const Tensor mean = model->get_buffer("bn.running_mean").tensor();
  CHECK(all_equal(mean, zeros({2})));
  model->call(input);
  CHECK_FALSE(all_equal(mean, zeros({2})));
  CHECK(model->get_buffer("bn.num_batches_tracked").tensor().item<std::int64_t>() == 1);
  Model reference;
  nn::copy_state(*model, reference);
  CHECK(all_equal(reference.get_buffer("bn.running_mean").tensor(), mean));
  model->eval();
  reference.eval();
  CHECK(all_equal(model->call(input).tensor(), reference.call(input).tensor()));
}

TEST_CASE("a saved and loaded model is a reference, buffers too") {
  const auto model = init_model<Model>({.dtype = DType::kF64});
  const std::vector<Variable> input = model->get_input(kCpu, 0);
  const random::StepScope step({.seed = 1, .step = 0});
  model->call(input);
  const nn::StateDict state = nn::state_dict(*model).clone();
  CHECK(state.size() == expected_parameters(true).size() + 5);
  CHECK(state.tensor("long_buffer").dtype() == DType::kI64);
  Model reference({.dtype = DType::kF64});
  nn::load_state_dict(reference, state);
  model->eval();
  reference.eval();
  CHECK(all_equal(model->call(input).tensor(), reference.call(input).tensor()));
}

TEST_CASE("converting the model leaves the integer buffer as it is") {
  const auto model = init_model<Model>({.deterministic = true});
  model->bfloat16();
  CHECK(model->get_buffer("vocab_bias").dtype() == DType::kBF16);
  CHECK(model->get_buffer("long_buffer").dtype() == DType::kI64);
  const std::vector<Variable> input = model->get_input(kCpu, 0);
  const Variable output = model->call(input);
  CHECK(output.dtype() == DType::kBF16);
  model->run_backward(model->get_loss(input, output));
  CHECK(model->get_parameter("embed_tokens.weight").grad().dtype() == DType::kBF16);
}

}  // namespace
}  // namespace tessera::testing
