// Net, DoubleLinear, SkipModel, SaveForwardInputsModel; and parameter_grad_check itself.

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/models/plain.h"
#include "tessera/tests/support/models/small_models.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::testing {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("a net is three linear layers") {
  Net model({.dtype = DType::kF64});
  nn::initialize(model, {.seed = 3});
  CHECK(parameter_names(model) ==
        Names{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"});
  CHECK(elements(model) == 18);
  const Variable x(normal_rows({3, 2}, 1));
  Rows expected = rows_of(x.tensor());
  for (const char* layer : {"fc1", "fc2", "fc3"}) expected = plain_linear(model, layer, expected);
  CHECK(distance(rows_of(model(x).tensor()), expected) < 1e-14);
  const GradCheckResult result = parameter_grad_check(model, [&] { return sum(model(x)); });
  INFO(result.message);
  CHECK(result.passed);
}

TEST_CASE("a double linear gives both results, or the first alone") {
  DoubleLinear both({.dim = 4, .dtype = DType::kF64});
  DoubleLinear single({.dim = 4, .use_second = false, .dtype = DType::kF64});
  nn::initialize(both, {.seed = 3});
  nn::copy_state(both, single);
  CHECK(module_names(both) == Names{"", "lin1", "lin2", "relu"});
  CHECK(names_of(both, both.groups()) == Names{"lin1", "lin2"});
  const Variable x(normal_rows({3, 4}, 1));
  const Rows in = rows_of(x.tensor());
  const auto [first, second] = both(x);
  CHECK(distance(rows_of(first.tensor()), plain_relu(plain_linear(both, "lin1", in))) < 1e-14);
  CHECK(distance(rows_of(second.tensor()), plain_relu(plain_linear(both, "lin2", in))) < 1e-14);
  const GradCheckResult result = parameter_grad_check(both, [&] {
    const auto [a, b] = both(x);
    return sum(a * b);
  });
  INFO(result.message);
  CHECK(result.passed);

  const auto [only, none] = single(x);
  CHECK(all_equal(only.tensor(), first.tensor()));
  CHECK_FALSE(none.defined());
  backward(sum(only));
  CHECK(single.get_parameter("lin1.weight").grad().defined());
  CHECK_FALSE(single.get_parameter("lin2.weight").grad().defined());
}

TEST_CASE("a skip model's groups leave some layers to the root") {
  const bool double_nest = GENERATE(false, true);
  SkipModel model({.double_nest = double_nest, .dtype = DType::kF64});
  nn::initialize(model, {.seed = 3});
  CHECK(parameter_names(model) ==
        Names{"linear.weight", "linear_skip.lin.weight", "nested_linear.nested_linear.weight"});
  const Names groups = names_of(model, model.groups());
  CHECK(groups == (double_nest ? Names{"nested_linear.nested_linear", "nested_linear"}
                               : Names{"nested_linear"}));
  const Variable x(normal_rows({3, 10}, 1));
  Rows expected = rows_of(x.tensor());
  for (const char* layer : {"linear", "linear_skip.lin", "nested_linear.nested_linear"}) {
    expected = plain_linear(model, layer, expected);
  }
  CHECK(distance(rows_of(model(x).tensor()), expected) < 1e-13);
}

TEST_CASE("forward inputs are kept as they came") {
  const bool casts = GENERATE(false, true);
  SaveForwardInputsModel model({.cast_forward_inputs = casts});
  nn::initialize(model, {.seed = 3});
  CHECK(parameter_names(model) == Names{"c1.l.weight", "c1.l.bias", "c2.l.weight", "c2.l.bias"});
  CHECK_FALSE(model.forward_input().defined());
  CHECK_FALSE(model.c1().forward_input().defined());
  const Variable wide(normal_rows({2, 100}, 1));
  if (casts) {
    CHECK(model(wide).dtype() == DType::kF32);
    CHECK(model.c1().forward_input().dtype() == DType::kF64);
    CHECK(model.forward_input().dtype() == DType::kF64);
  } else {
    CHECK_THROWS_AS(model(wide), InvalidArgument);
  }
  const Variable x(cast(wide.tensor(), DType::kF32));
  const Variable y = model(x);
  CHECK(y.shape() == Shape{2, 100});
  CHECK(all_equal(model.forward_input(), x.tensor()));
  CHECK(all_equal(model.c1().forward_input(), x.tensor()));
  CHECK(model.c2().forward_input().dtype() == DType::kF32);
  CHECK(all_equal(model.c2()(Variable(model.c2().forward_input())).tensor(), y.tensor()));
}

TEST_CASE("parameter_grad_check finds a wrong derivative, and leaves the model as it was") {
  Net model({.dtype = DType::kF64});
  nn::initialize(model, {.seed = 3});
  const Variable x(normal_rows({3, 2}, 1));
  const Tensor before = clone(model.get_parameter("fc1.weight").local().tensor());
  const auto wrong = [&] {
    const Variable y = model(x);
    return sum(square(y) + y.detach());
  };
  const GradCheckResult result = parameter_grad_check(model, wrong);
  CHECK_FALSE(result.passed);
  CHECK(all_equal(model.get_parameter("fc1.weight").local().tensor(), before));
  CHECK_FALSE(model.get_parameter("fc1.weight").grad().defined());
}

}  // namespace
}  // namespace tessera::testing
