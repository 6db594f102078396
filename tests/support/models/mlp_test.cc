// MLP and MLPStack, MLPModule and MLPStacked: names, values, gradients, the buffer.

#include "tessera/tests/support/models/mlp.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/recompute.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/models/plain.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::testing {
namespace {

using Names = std::vector<std::string>;

// `mlp` is the MLP's name with a dot, or "" if it is the whole model.
Rows plain_mlp(nn::Module& model, const std::string& mlp, const Rows& x) {
  Rows y = plain_relu(plain_linear(model, mlp + "in_proj", x));
  return plain_relu(plain_linear(model, mlp + "out_proj", y));
}

void check_gradients(nn::Module& model, const std::function<Variable()>& output) {
  const GradCheckResult result = parameter_grad_check(model, [&] { return sum(square(output())); });
  INFO(result.message);
  CHECK(result.passed);
}

TEST_CASE("an MLP widens by its multiplier and comes back") {
  const std::int64_t multiplier = GENERATE(1, 3, 4);
  const bool bias = GENERATE(false, true);
  MLP model({.dim = 5, .multiplier = multiplier, .bias = bias, .dtype = DType::kF64});
  nn::initialize(model, {.seed = 3});
  CHECK(model.get_parameter("in_proj.weight").shape() == Shape{5 * multiplier, 5});
  CHECK(model.get_parameter("out_proj.weight").shape() == Shape{5, 5 * multiplier});
  CHECK(model.named_parameters().size() == (bias ? 4u : 2u));
  CHECK(model.named_buffers().empty());
  const Variable x(normal_rows({7, 5}, 1));
  CHECK(distance(rows_of(model(x).tensor()), plain_mlp(model, "", rows_of(x.tensor()))) < 1e-13);
  CHECK(model(Variable(normal_rows({0, 5}, 1))).shape() == Shape{0, 5});
  check_gradients(model, [&] { return model(x); });
}

TEST_CASE("an MLP has its options by default") {
  const MLP model({.dim = 2});
  CHECK(parameter_names(model) ==
        Names{"in_proj.weight", "in_proj.bias", "out_proj.weight", "out_proj.bias"});
  CHECK(elements(model) == 16 + 8 + 16 + 2);
  CHECK_THROWS_WITH(MLP({.dim = 0}),
                    Catch::Contains("[nn.Linear] expected in and out of at least 1"));
}

TEST_CASE("an MLP's buffer is added at the end, and drawn anew to the same numbers") {
  MLP model({.dim = 6, .with_buffer = true, .dtype = DType::kF64});
  nn::initialize(model, {.seed = 3});
  REQUIRE(model.named_buffers().size() == 1);
  CHECK(model.named_buffers()[0].name == "buffer");
  const Tensor buffer = model.get_buffer("buffer").tensor();
  const Tensor drawn = clone(buffer);
  CHECK(distance(rows_of(drawn), {std::vector<double>(6)}) > 0.1);
  const Variable x(normal_rows({3, 6}, 1));
  Rows expected = plain_mlp(model, "", rows_of(x.tensor()));
  const std::vector<double> added = drawn.to_vector<double>();
  for (auto& row : expected) {
    for (std::size_t i = 0; i < row.size(); ++i) row[i] += added[i];
  }
  CHECK(distance(rows_of(model(x).tensor()), expected) < 1e-13);
  check_gradients(model, [&] { return model(x); });

  fill_(buffer, 0);
  fill_(model.get_parameter("in_proj.weight").local().tensor(), 0);
  nn::reinitialize(model, 3);
  CHECK(all_equal(buffer, drawn));
  CHECK(distance(rows_of(model(x).tensor()), expected) < 1e-13);
  nn::reinitialize(model, 4);
  CHECK_FALSE(all_equal(buffer, drawn));
}

TEST_CASE("an MLP stack has multipliers 3, 4 and 3, and a norm where asked for") {
  const bool norm = GENERATE(false, true);
  MLPStack model({.dim = 3, .with_seq_parallel = norm, .dtype = DType::kF64});
  nn::initialize(model, {.seed = 3});
  Names names;
  for (const char* mlp : {"0", "1", "2"}) {
    for (const char* layer : {"in_proj", "out_proj"}) {
      for (const char* parameter : {"weight", "bias"}) {
        names.push_back(std::string(mlp) + "." + layer + "." + parameter);
      }
    }
  }
  if (norm) names.push_back("3.weight");
  CHECK(parameter_names(model) == names);
  CHECK(names_of(model, model.groups()) == Names{"0", "1", "2"});
  CHECK(model.get_parameter("0.in_proj.weight").shape() == Shape{9, 3});
  CHECK(model.get_parameter("1.in_proj.weight").shape() == Shape{12, 3});
  CHECK(model.get_parameter("2.in_proj.weight").shape() == Shape{9, 3});

  const Variable x(normal_rows({4, 3}, 1));
  Rows expected = rows_of(x.tensor());
  for (const char* mlp : {"0.", "1.", "2."}) expected = plain_mlp(model, mlp, expected);
  for (auto& row : expected) {
    if (!norm) break;
    double mean = 0, variance = 0;
    for (const double value : row) mean += value / 3;
    for (const double value : row) variance += (value - mean) * (value - mean) / 3;
    for (double& value : row) value = (value - mean) / std::sqrt(variance + 1e-5);
  }
  CHECK(distance(rows_of(model(x).tensor()), expected) < 1e-12);
  check_gradients(model, [&] { return model(x); });
}

TEST_CASE("recomputing the MLPs of a stack changes neither names nor bits") {
  MLPStack plain({.dim = 16}), saving({.dim = 16});
  nn::initialize(plain, {.seed = 3});
  for (nn::Module* mlp : saving.groups()) nn::recompute(*mlp);
  nn::copy_state(plain, saving);
  CHECK(parameter_names(plain) == parameter_names(saving));
  const Variable x(normal_rows({5, 16}, 1, DType::kF32));
  CHECK(all_equal(plain(x).tensor(), saving(x).tensor()));
  backward(sum(plain(x)));
  backward(sum(saving(x)));
  for (const auto& [name, parameter] : plain.named_parameters()) {
    CHECK(all_equal(parameter.grad(), saving.get_parameter(name).grad()));
  }
}

TEST_CASE("MLP modules go 10 -> 16 -> 10, stacked ones after another") {
  MLPModule one({.dtype = DType::kF64});
  nn::initialize(one, {.seed = 5});
  CHECK(module_names(one) == Names{"", "net1", "relu", "net2"});
  CHECK(elements(one) == 176 + 170);
  CHECK(MLPModule({.bias = false}).parameters().size() == 2);
  const Variable x(normal_rows({3, 10}, 1));
  const auto plain = [](nn::Module& model, const std::string& at, const Rows& rows) {
    return plain_linear(model, at + "net2", plain_relu(plain_linear(model, at + "net1", rows)));
  };
  CHECK(distance(rows_of(one(x).tensor()), plain(one, "", rows_of(x.tensor()))) < 1e-13);

  MLPStacked stacked({.layers = 3, .dtype = DType::kF64});
  nn::initialize(stacked, {.seed = 5});
  CHECK(names_of(stacked, stacked.groups()) == Names{"layers.0", "layers.1", "layers.2"});
  Rows expected = rows_of(x.tensor());
  for (const char* layer : {"layers.0.", "layers.1.", "layers.2."}) {
    expected = plain(stacked, layer, expected);
  }
  CHECK(distance(rows_of(stacked(x).tensor()), expected) < 1e-13);
  CHECK(MLPStacked().groups().size() == 2);
}

}  // namespace
}  // namespace tessera::testing
