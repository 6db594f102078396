// The numerical check itself: it must see what is wrong.
#include "tessera/autograd/grad_check.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Contains;
using Inputs = std::vector<Variable>;

// The square, with a derivative that is off by a factor.
Variable wrong_square(const Variable& x, double factor) {
  return record_twice(
      "wrong_square", square(x.tensor()), {x},
      [x = SavedVariable(x, "wrong_square"), factor](const Variable& dy, const BackwardContext&) {
        return Gradients{mul(mul(dy, 2 * factor), x.unpack())};
      });
}

TEST_CASE("grad_check: passes the right and fails the wrong, telling where") {
  const Inputs inputs = {leaf({2}), leaf({2, 3}, 0.5, 1)};
  const auto with = [](double factor) {
    return [factor](const Inputs& in) { return add(sum(in[0]), wrong_square(in[1], factor)); };
  };
  CHECK(grad_check(with(1), inputs));
  const GradCheckResult result = grad_check(with(1.001), inputs);
  CHECK_FALSE(result);
  CHECK_THAT(result.message,
             Contains("input 1, element [") && Contains("analytic") && Contains("numeric"));
  CHECK(grad_check(with(1.001), inputs, {.tolerance = 1e-2}));
  CHECK_FALSE(inputs[0].grad().defined());
}

TEST_CASE("grad_check: sees a swapped element, a lost input and a NaN") {
  const Inputs x = {leaf({3}, 0.5, 1)};
  const auto swapped = [](const Inputs& in) {
    return record_twice(
        "swapped", in[0].tensor(), {in[0]}, [](const Variable& dy, const BackwardContext&) {
          const std::vector<double> v = values(dy);
          return Gradients{Variable(Tensor::from_vector<double>({v[1], v[0], v[2]}, {3}))};
        });
  };
  CHECK_FALSE(grad_check(swapped, x));
  CHECK_FALSE(grad_check([](const Inputs& in) { return square(in[0].detach()); }, x));
  const auto nan = [](const Inputs& in) {
    return record_twice(
        "nan", in[0].tensor(), {in[0]},
        [](const Variable& dy, const BackwardContext&) { return Gradients{mul(dy, NAN)}; });
  };
  CHECK_FALSE(grad_check(nan, x));
}

TEST_CASE("grad_check: functions of nothing and without graph are fine when constant") {
  CHECK(grad_check([](const Inputs&) { return constant(3); }, {leaf({2})}));
  CHECK(grad_check([](const Inputs&) { return constant(3); }, {}));
  CHECK(grad_grad_check([](const Inputs&) { return constant(3); }, {leaf({2})}));
}

TEST_CASE("grad_check: works and records also where grad mode is off") {
  NoGradGuard no_grad;
  CHECK(grad_check([](const Inputs& in) { return square(in[0]); }, {leaf({2})}));
  CHECK_FALSE(grad_enabled());
}

TEST_CASE("grad_grad_check: sees a wrong second derivative behind a right first") {
  // cube = x * x * x, whose first derivative, 3 x^2, is computed from a constant copy of x.
  const auto broken_cube = [](const Inputs& in) {
    return record_twice("cube", mul(square(in[0].tensor()), in[0].tensor()), {in[0]},
                        [x = in[0].detach()](const Variable& dy, const BackwardContext&) {
                          return Gradients{mul(dy, mul(square(x), 3.0))};
                        });
  };
  const auto cube = [](const Inputs& in) { return mul(square(in[0]), in[0]); };
  const Inputs x = {leaf({3}, 0.5, 1)};
  CHECK(grad_check(cube, x));
  CHECK(grad_grad_check(cube, x));
  CHECK(grad_check(broken_cube, x));
  CHECK_FALSE(grad_grad_check(broken_cube, x));
}

TEST_CASE("grad_check: errors") {
  const auto id = [](const Inputs& in) { return in[0]; };
  const std::string text = "input 0 is not an f64 leaf that requires a gradient";
  CHECK(thrown<InvalidArgument>([&] { grad_check(id, {constant(1)}); }) == "[grad_check] " + text);
  const Variable f32(zeros({2}), true);
  CHECK(thrown<InvalidArgument>([&] { grad_check(id, {f32}); }) == "[grad_check] " + text);
  CHECK(thrown<InvalidArgument>([&] { grad_grad_check(id, {mul(scalar_leaf(1.0), 2.0)}); }) ==
        "[grad_grad_check] " + text);
  const auto to_f32 = [](const Inputs& in) { return cast(in[0], DType::kF32); };
  CHECK(thrown<InvalidArgument>([&] { grad_check(to_f32, {leaf({2})}); }) ==
        "[grad_check] the function returned f32; compute in f64");
}

}  // namespace
}  // namespace tessera::testing
