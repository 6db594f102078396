// Functions of one and two variables: what ops_test.cc does not reach by differences. The numbers at
// ties, NaN and infinities are PyTorch's.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Variable list(const std::vector<double>& x) {
  return Variable(Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())}), true);
}

// The gradients of y for dy = 1, 2, 3 ...
std::vector<std::vector<double>> gradients_of(const Variable& y, const Inputs& x) {
  const Tensor dy = cast(add(arange(y.numel()), 1), DType::kF64);
  std::vector<std::vector<double>> out;
  for (const Variable& gradient : grad({&y, 1}, x, {.gradient = dy}))
    out.push_back(gradient.defined() ? values(gradient) : std::vector<double>());
  return out;
}

void check_same(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": " << got[i] << ", expected " << expected[i]);
    CHECK((got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))));
  }
}

TEST_CASE("clamp with tensors as bounds") {
  const Inputs in = {leaf({3, 4}, -2, 2), leaf({4}, -1.5, -0.2, 0.3), leaf({3, 1}, 0.1, 1.5, 0.6)};
  check_twice([](const Inputs& x) { return clamp(x[0], x[1], x[2]); }, in);
  check_twice([](const Inputs& x) { return clamp(x[0], x[1], 0.4); }, in);
  check_twice([](const Inputs& x) { return clamp(x[0], -0.4, x[2]); }, in);
  check_twice([](const Inputs& x) { return clamp(x[2], x[1], x[0]); }, in);  // x broadcasts
  check_twice([](const Inputs& x) { return clamp_min(x[0], x[1]); }, in);
  check_twice([](const Inputs& x) { return clamp_max(x[0], x[2]); }, in);
  check_twice([](const Inputs& x) { return clamp_min(x[0], 0.3); }, {in[0]});
  check_twice([](const Inputs& x) { return clamp_max(x[0], 0.3); }, {in[0]});
  const Tensor low = in[1].tensor(), high = in[2].tensor(), x = in[0].tensor();
  CHECK(values(clamp(in[0], low, high)) == values(clamp(x, low, high)));
  CHECK(values(clamp_min(in[0], low)) == values(clamp_min(x, low)));
  CHECK(values(clamp_max(in[0], high)) == values(clamp_max(x, high)));
  check_twice([](const Inputs& v) { return clamp(v[0], v[1], v[2]); },
              {leaf({0, 3}), leaf({3}), leaf({})});
}

TEST_CASE("clamp with tensors as bounds: ties, crossed bounds and NaN") {
  const Variable x = list({-2, 0.5, 1, 3, kNaN, 2, 0, 2}), low = list({0, 0.5, 0, 0, 0, 2.5, 3, 2}),
                 high = list({1, 2, 1, 2, 1, 1, -1, 2});
  const auto both = gradients_of(clamp(x, low, high), {x, low, high});
  check_same(both[0], {0, 1, 1.5, 0, 5, 0, 0, 8});
  check_same(both[1], {1, 1, 0, 0, 0, 0, 0, 0});
  check_same(both[2], {0, 0, 1.5, 4, 0, 6, 7, 0});
  const auto lower = gradients_of(clamp_min(x, low), {x, low});
  check_same(lower[0], {0, 1, 3, 4, 5, 0, 0, 4});
  check_same(lower[1], {1, 1, 0, 0, 5, 6, 7, 4});
  const auto upper = gradients_of(clamp_max(x, high), {x, high});
  check_same(upper[0], {1, 2, 1.5, 0, 5, 0, 0, 4});
  check_same(upper[1], {0, 0, 1.5, 4, 5, 6, 7, 4});
  // A number takes nothing.
  check_same(gradients_of(clamp(x, 0.5, high), {x, high})[0], {0, 2, 1.5, 0, 5, 0, 0, 4});
  check_same(gradients_of(clamp_min(x, 0.5), {x})[0], {0, 2, 3, 4, 0, 6, 0, 8});
  check_same(gradients_of(clamp_max(x, 1), {x})[0], {1, 2, 3, 0, 0, 0, 7, 0});
}

TEST_CASE("fmax and fmin: ties and NaN") {
  const Variable a = list({1, 2, kNaN, 1, kNaN}), b = list({1, 3, 1, kNaN, kNaN});
  const auto larger = gradients_of(fmax(a, b), {a, b}), smaller = gradients_of(fmin(a, b), {a, b});
  check_same(larger[0], {0.5, 0, 0, 4, 5});
  check_same(larger[1], {0.5, 2, 3, 0, 0});
  check_same(smaller[0], {0.5, 2, 0, 4, 5});
  check_same(smaller[1], {0.5, 0, 3, 0, 0});
  check_same(gradients_of(fmax(a, 1), {a})[0], {0.5, 2, 0, 2, 0});
  check_same(gradients_of(fmax(a, kNaN), {a})[0], {1, 2, 3, 4, 5});
}

TEST_CASE("functions of two variables: slopes at zeros and infinities") {
  const Variable a = list({0, 0, 0, 2}), b = list({0, -1, 2, 3});
  const auto product = gradients_of(xlogy(a, b), {a, b});
  CHECK(product[0][0] == 0);
  CHECK(product[0][1] == 0);
  CHECK(product[0][2] == Approx(3 * std::log(2)));
  CHECK(product[0][3] == Approx(4 * std::log(3)));
  check_same(product[1], {kNaN, -0.0, 0, 8.0 / 3});
  CHECK(gradients_of(xlogy(a, -1), {a})[0][0] == 0);
  CHECK(gradients_of(xlogy(a, 2), {a})[0][0] == Approx(std::log(2)));
  const Variable c = list({1, -2, 0, 3}), d = list({-1, -1, -1, 2});
  const auto sign_of = gradients_of(copysign(c, d), {c, d});
  check_same(sign_of[0], {-1, 2, 0, 4});
  CHECK(sign_of[1].empty());  // undefined: 0
  const Variable e = list({kInf, 0, -kInf, kInf}), f = list({0, -kInf, 2, -kInf});
  const auto sum = gradients_of(logaddexp(e, f), {e, f});
  check_same(sum[0], {1, 2, 0, 4});
  check_same(sum[1], {0, 0, 3, 0});
  const Variable g = list({7, -7, 7.5}), h = list({3, 3, -2});
  const auto rest = gradients_of(fmod(g, h), {g, h});
  check_same(rest[0], {1, 2, 3});
  check_same(rest[1], {-2, 4, 9});
  const Variable x = list({kNaN, kInf, -kInf, 2});
  check_same(gradients_of(nan_to_num(x), {x})[0], {0, 0, 0, 4});
}

TEST_CASE("atan2: slopes at the origin, near it and far from it") {
  const auto f32 = [](const std::vector<float>& x) {
    return Variable(Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())}), true);
  };
  const Variable up = f32({0, 1e-30F, 1e20F, 0, 3}), across = f32({0, 1e-30F, 1e20F, 2, -4});
  const Inputs in = {up, across};
  const Variable y = sum(atan2(up, across));
  const std::vector<Variable> slopes = grad({&y, 1}, in);
  const std::vector<double> expected[] = {{0, 5e29, 5e-21, 0.5, -0.16},
                                          {0, -5e29, -5e-21, 0, -0.12}};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<double> got = values(slopes[i]);
    for (std::size_t j = 0; j < got.size(); ++j) CHECK(got[j] == Approx(expected[i][j]));
  }
  for (double number : {0.0, -0.0}) {
    const Variable x = list({0, -0.0});
    check_same(gradients_of(atan2(x, number), {x})[0], {0, 0});
    check_same(gradients_of(atan2(number, x), {x})[0], {0, 0});
  }
}

TEST_CASE("atan2: second derivatives, which are 0 at the origin") {
  const Variable up = list({0, 1}), across = list({0, 2});
  const Inputs in = {up, across};
  const Variable y = sum(atan2(up, across));
  const std::vector<Variable> slopes = grad({&y, 1}, in, {.create_graph = true});
  const Variable total = sum(slopes[0]);
  // Of across / r^2 at (1, 2): -2 up across / r^4, (up^2 - across^2) / r^4.
  const std::vector<Variable> second = grad({&total, 1}, in);
  const std::vector<double> by_up = values(second[0]), by_across = values(second[1]);
  CHECK(by_up[0] == 0);
  CHECK(by_across[0] == 0);
  CHECK(by_up[1] == Approx(-0.16));
  CHECK(by_across[1] == Approx(-0.12));
  check_twice([](const Inputs& x) { return atan2(x[0], x[1]); },
              {leaf({3, 4}, 0.3, 2), leaf({4}, -2, -0.3, 0.3)});
}

TEST_CASE("functions of two variables with a number on either side") {
  using Function = Variable (*)(const VariableOrNumber&, const VariableOrNumber&);
  const Inputs x = {leaf({3, 5}, 0.6, 2.9)};
  for (const Function f :
       {Function(fmax), Function(fmin), Function(atan2), Function(hypot), Function(copysign),
        Function(logaddexp), Function(logaddexp2), Function(xlogy)}) {
    check_twice([f](const Inputs& in) { return f(in[0], 1.7); }, x);
    if (f == Function(copysign)) continue;  // its slope by the sign is undefined
    check_twice([f](const Inputs& in) { return f(1.7, in[0]); }, x);
  }
  const Tensor constant_ = irregular({5}, 0.6, 2.9, 0.4);
  check_twice([&](const Inputs& in) { return atan2(in[0], constant_); }, x);
  check_twice([&](const Inputs& in) { return hypot(constant_, in[0]); }, x);
}

TEST_CASE("add and sub with alpha; div with a rounding mode has no slope") {
  const Inputs in = {leaf({3, 4}), leaf({4}, 0.7, 2, 0.3)};
  check_twice([](const Inputs& x) { return square(add(x[0], x[1], -0.7)); }, in);
  check_twice([](const Inputs& x) { return square(sub(x[0], x[1], 2)); }, in);
  check_twice([](const Inputs& x) { return square(sub(1.5, x[0], 2)); }, {in[0]});
  const Tensor x = in[0].tensor(), y = in[1].tensor();
  CHECK(values(add(in[0], y, 3)) == values(add(x, y, 3)));
  CHECK(values(add(x, in[1], 3)) == values(add(x, y, 3)));
  CHECK(values(sub(in[0], y, 3)) == values(sub(x, y, 3)));
  CHECK(values(sub(x, in[1], 3)) == values(sub(x, y, 3)));
  for (RoundingMode mode : {RoundingMode::kTrunc, RoundingMode::kFloor}) {
    const Variable quotient = div(in[0], in[1], mode);
    CHECK(values(quotient) == values(div(x, y, mode)));
    const Variable total = sum(add(quotient, in[0]));
    CHECK(values(grad({&total, 1}, {&in[0], 1})[0]) == std::vector<double>(12, 1.0));
  }
}

TEST_CASE("polygamma and nan_to_num: derivatives") {
  for (int n : {0, 1, 2, 3}) {
    INFO(n);
    check_twice([n](const Inputs& in) { return polygamma(n, in[0]); }, {leaf({3, 5}, 0.8, 3)});
    check_twice([n](const Inputs& in) { return polygamma(n, in[0]); }, {leaf({5}, -0.7, -0.3)});
  }
  check_twice([](const Inputs& in) { return square(nan_to_num(in[0])); }, {leaf({3, 5})});
}

TEST_CASE("sinc at 0: both derivatives") {
  const Variable x = list({0});
  const Variable y = sinc(x);
  const Variable slope = grad({&y, 1}, {&x, 1}, {.create_graph = true})[0];
  CHECK(values(slope) == std::vector<double>{0});
  const double pi = 3.14159265358979323846;
  CHECK(values(grad({&slope, 1}, {&x, 1})[0])[0] == Approx(-pi * pi / 3));
}

TEST_CASE("predicates and bits of variables are the tensors'") {
  const Variable x = list({-1, 2}), i(arange(3)), flag(eq(arange(2), 1));
  CHECK(signbit(x).to_vector<bool>() == std::vector<bool>{1, 0});
  CHECK(isclose(x, x.tensor()).to_vector<bool>() == std::vector<bool>{1, 1});
  CHECK(allclose(x, x));
  CHECK(equal(x.tensor(), x));
  CHECK_FALSE(allclose(x, neg(x), {.atol = 0.5}));
  CHECK(bitwise_and(i, 1).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 0});
  CHECK(bitwise_left_shift(i, i).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 2, 8});
  CHECK(bitwise_not(flag).to_vector<bool>() == std::vector<bool>{1, 0});
}

}  // namespace
}  // namespace tessera::testing
