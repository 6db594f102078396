#include "tessera/models/nets/mlp_stack.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/random.h"

namespace tessera::models {
namespace {

using Catch::Matchers::Contains;
using Rows = std::vector<std::vector<double>>;

// The definition in plain loops.
Rows linear(const Rows& x, const std::vector<double>& weight, const std::vector<double>& bias) {
  Rows y;
  for (const auto& row : x) {
    std::vector<double> out = bias;
    for (std::size_t o = 0; o < out.size(); ++o)
      for (std::size_t i = 0; i < row.size(); ++i) out[o] += weight[o * row.size() + i] * row[i];
    y.push_back(out);
  }
  return y;
}
double activate(Activation activation, double x) {
  return activation == Activation::kRelu ? std::max(x, 0.0)
                                         : x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
}

Tensor random_rows(std::int64_t rows, std::int64_t cols) {
  const Tensor x = Tensor::empty({rows, cols}, {.dtype = DType::kF64});
  random::fill_normal(x, random::named_key(1, "x"), random::whole(x.shape()), 0, 1);
  return x;
}

MlpOptions small(Activation activation) {
  return {.in = 5, .hidden = {7, 3}, .classes = 4, .activation = activation, .dtype = DType::kF64};
}

TEST_CASE("the stack computes block after block, then the head") {
  const Activation activation = GENERATE(Activation::kGelu, Activation::kRelu);
  MlpStack model(small(activation));
  nn::initialize(model, {.seed = 3});
  const Tensor x = random_rows(6, 5);
  Rows wanted(6);
  const auto values = x.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) wanted[i / 5].push_back(values[i]);
  const auto parameters = model.named_parameters();
  REQUIRE(parameters.size() == 6);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    wanted = linear(wanted, parameters[2 * layer].parameter.local().tensor().to_vector<double>(),
                    parameters[2 * layer + 1].parameter.local().tensor().to_vector<double>());
    if (layer == 2) break;
    for (auto& row : wanted)
      for (double& value : row) value = activate(activation, value);
  }
  const auto logits = model(Variable(x)).tensor();
  REQUIRE(logits.shape() == Shape{6, 4});
  const auto actual = logits.to_vector<double>();
  for (std::size_t i = 0; i < actual.size(); ++i)
    CHECK(actual[i] == Approx(wanted[i / 4][i % 4]).margin(1e-12));
}

TEST_CASE("parameters have names that say where they are") {
  MlpStack model(small(Activation::kGelu));
  std::vector<std::string> names;
  for (const auto& [name, parameter] : model.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"blocks.0.linear.weight", "blocks.0.linear.bias",
                                          "blocks.1.linear.weight", "blocks.1.linear.bias",
                                          "head.weight", "head.bias"});
}

TEST_CASE("the stack's gradient is right") {
  MlpStack model(small(Activation::kGelu));
  nn::initialize(model, {.seed = 3});
  const Tensor targets = Tensor::from_vector(std::vector<std::int64_t>{3, 0, 1}, {3});
  const auto loss = [&](const std::vector<Variable>& inputs) {
    return cross_entropy(model(inputs[0]), targets);
  };
  const GradCheckResult result = grad_check(loss, {Variable(random_rows(3, 5), true)});
  INFO(result.message);
  CHECK(result.passed);
}

TEST_CASE("a stack may have no hidden layer and a batch no rows") {
  MlpStack model({.in = 5, .hidden = {}, .classes = 2, .dtype = DType::kF64});
  nn::initialize(model);
  CHECK(model.named_parameters().size() == 2);
  CHECK(model(Variable(random_rows(0, 5))).shape() == Shape{0, 2});
}

TEST_CASE("extents below 1 are refused by name") {
  CHECK_THROWS_WITH(MlpStack({.in = 0}), Contains("[mlp_stack] in is 0"));
  CHECK_THROWS_WITH(MlpStack({.classes = 0}), Contains("[mlp_stack] classes is 0"));
  CHECK_THROWS_WITH(MlpStack({.hidden = {8, -1}}), Contains("[mlp_stack] hidden[1] is -1"));
}

TEST_CASE("presets and activations are found by name") {
  CHECK(mlp_presets().front().name == std::string("base"));
  CHECK(mlp_preset("small").hidden == std::vector<std::int64_t>{128});
  CHECK_THROWS_WITH(mlp_preset("huge"),
                    Contains("unknown preset \"huge\"; there are: base, small, deep"));
  for (const Activation activation : {Activation::kGelu, Activation::kRelu})
    CHECK(activation_named(activation_name(activation)) == activation);
  CHECK_THROWS_WITH(activation_named("tanh"),
                    Contains("unknown activation \"tanh\"; there are: gelu, relu"));
}

}  // namespace
}  // namespace tessera::models
