// Functions of one and two tensors: values at the ends of their domains, bits of integers, bounds,
// comparisons. The distance of functions of one tensor to the exact value is in unary_test.cc.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Function = Tensor (*)(const Tensor&);
using BinaryFunction = Tensor (*)(const TensorOrNumber&, const TensorOrNumber&);

Tensor doubles(const std::vector<double>& x) {
  return Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())});
}
Tensor whole(const std::vector<std::int64_t>& x, DType dtype = DType::kI64) {
  return cast(Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())}), dtype);
}
std::vector<double> values(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }
std::vector<std::int64_t> numbers(const Tensor& x) {
  return cast(x, DType::kI64).to_vector<std::int64_t>();
}

// Equal with signs of zeros; NaN is NaN, whatever its bits.
void check_same(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": " << got[i] << ", expected " << expected[i]);
    const bool both_nan = std::isnan(got[i]) && std::isnan(expected[i]);
    CHECK(
        (both_nan || (got[i] == expected[i] && std::signbit(got[i]) == std::signbit(expected[i]))));
  }
}

// As PyTorch has them, in f32 and f64.
TEST_CASE("functions of one tensor at the ends of their domains") {
  struct Case {
    Function op;
    std::vector<double> x, y;
  };
  const Case cases[] = {
      {tessera::exp2, {-kInf, -2000, 0, 3, 2000, kInf}, {0, 0, 1, 8, kInf, kInf}},
      {tessera::log2, {0, -0.0, -1, 1, 1024, kInf}, {-kInf, -kInf, kNaN, 0, 10, kInf}},
      {tessera::log10, {0, -1, 1, 1000, kInf}, {-kInf, kNaN, 0, 3, kInf}},
      {tessera::tan, {0, -0.0, kInf, -kInf}, {0, -0.0, kNaN, kNaN}},
      {tessera::asin, {0, -0.0, 2, -2}, {0, -0.0, kNaN, kNaN}},
      {tessera::acos, {1, 2, -2}, {0, kNaN, kNaN}},
      {tessera::atan, {0, -0.0}, {0, -0.0}},
      {tessera::sinh, {0, -0.0, 1e3, -1e3, kInf, -kInf}, {0, -0.0, kInf, -kInf, kInf, -kInf}},
      {tessera::cosh, {0, 1e3, -kInf}, {1, kInf, kInf}},
      {tessera::asinh, {0, -0.0, kInf, -kInf}, {0, -0.0, kInf, -kInf}},
      {tessera::acosh, {1, 0.5, -1e30, -kInf, kInf}, {0, kNaN, kNaN, kNaN, kInf}},
      {tessera::atanh, {0, -0.0, 1, -1, 1.5, -2}, {0, -0.0, kInf, -kInf, kNaN, kNaN}},
      {sinc, {0, -0.0, kInf, -kInf}, {1, 1, kNaN, kNaN}},
      {tessera::erfc, {-kInf, -30, 0, 30, kInf}, {2, 2, 1, 0, 0}},
      {erfinv, {0, -0.0, 1, -1, 1.5, -kInf}, {0, -0.0, kInf, -kInf, kNaN, kNaN}},
      {tessera::lgamma, {0, -1, 1, 2, kInf, -kInf}, {kInf, kInf, 0, 0, kInf, kInf}},
      {digamma, {0, -0.0, -1, -2, kInf, -kInf}, {-kInf, kInf, kNaN, kNaN, kInf, kNaN}},
      {frac, {1.5, -1.5, 2, kInf}, {0.5, -0.5, 0, kNaN}},
  };
  for (const Case& c : cases) {
    INFO("case " << &c - cases);
    check_same(values(c.op(doubles(c.x))), c.y);
    check_same(values(c.op(cast(doubles(c.x), DType::kF32))), c.y);
  }
  // The quarter turns, in which f32 is rounded once.
  const float half_pi = 1.57079637f;
  CHECK(tessera::asin(ones({1})).item<float>() == half_pi);
  CHECK(tessera::acos(zeros({1})).item<float>() == half_pi);
  CHECK(tessera::atan(full({1}, kInf)).item<float>() == half_pi);
  for (std::int64_t i : {1, -2, 3}) CHECK(std::abs(sinc(whole({i})).item<float>()) == 0);
}

// Computed by mpmath with 40 digits.
TEST_CASE("lgamma, digamma and polygamma: known values") {
  const Tensor x = doubles({1, 0.5, 0.25, -0.5, -3.7, 10, 1e10});
  const auto check = [&](const Tensor& y, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(values(y)[i] == Approx(expected[i]).epsilon(1e-14).margin(1e-15));
  };
  check(tessera::lgamma(x), {0.0, 0.57236494292470009, 1.2880225246980775, 1.2655121234846454,
                             -1.3797399049658245, 12.80182748008147, 220258509288.81058});
  check(digamma(x),
        {-0.57721566490153286, -1.9635100260214235, -4.2274535333762654, 0.036489973978576521,
         -0.84507685887041935, 2.2517525890667211, 23.025850929890457});
  check(polygamma(0, x),
        {-0.57721566490153286, -1.9635100260214235, -4.2274535333762654, 0.036489973978576521,
         -0.84507685887041935, 2.2517525890667211, 23.025850929890457});
  check(polygamma(1, x),
        {1.6449340668482264, 4.9348022005446793, 17.197329154507111, 8.9348022005446793,
         14.84242186412428, 0.10516633568168575, 1.00000000005e-10});
  check(polygamma(2, x),
        {-2.4041138063191886, -16.82879664423432, -129.32773993753692, -0.82879664423432,
         -68.893454688673547, -0.011049834970802067, -1.0000000001e-20});
  check(polygamma(5, x),
        {122.0811674381339, 7691.1135486024355, 491552.51376768129, 15371.113548602435,
         165660.15728399349, 0.00030594516211726821, 2.4000000006e-49});
  check_same(values(polygamma(1, doubles({0, -2, kInf, -kInf, kNaN}))),
             {kInf, kInf, 0, kNaN, kNaN});
  check_same(values(polygamma(2, doubles({0, -2}))), {-kInf, -kInf});
  CHECK(polygamma(1, arange(3)).dtype() == DType::kF32);
  // f32 and 16 bits are computed in f64 and rounded once.
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor narrow = cast(spread_tensor<double>({67}, -5, 9), dtype);
    CHECK(bits_of(polygamma(2, narrow)) ==
          bits_of(cast(polygamma(2, cast(narrow, DType::kF64)), dtype)));
  }
  CHECK(thrown<InvalidArgument>([&] { polygamma(-1, x); }) ==
        "[polygamma] the order is -1; it must not be negative");
}

struct Pair {
  const char* name;
  BinaryFunction op;
  std::function<long double(long double, long double)> exact;
  double f32_ulps, f64_ulps;
};

TEST_CASE("functions of two tensors: distance to the exact value") {
  const Pair pairs[] = {
      {"atan2", tessera::atan2, [](auto a, auto b) { return std::atan2(a, b); }, 0.51, 1},
      {"hypot", tessera::hypot, [](auto a, auto b) { return std::hypot(a, b); }, 0.51, 1},
      {"copysign", tessera::copysign, [](auto a, auto b) { return std::copysign(a, b); }, 0, 0},
      {"fmod", tessera::fmod, [](auto a, auto b) { return std::fmod(a, b); }, 0, 0},
      {"fmax", tessera::fmax, [](auto a, auto b) { return std::fmax(a, b); }, 0, 0},
      {"fmin", tessera::fmin, [](auto a, auto b) { return std::fmin(a, b); }, 0, 0},
      {"logaddexp", logaddexp,
       [](auto a, auto b) { return std::log(std::exp(a + 20) + std::exp(b + 20)); }, 0, 0},
      {"logaddexp2", logaddexp2,
       [](auto a, auto b) { return std::log2(std::exp2(a) + std::exp2(b)); }, 0, 0},
  };
  for (const Pair& p : pairs) {
    INFO(p.name);
    const Tensor a = spread_tensor<double>({31, 67}, -9, 9), b = spread_tensor<double>({67}, -7, 7);
    for (DType dtype : {DType::kF32, DType::kF64}) {
      const Tensor left = cast(a, dtype), right = cast(b, dtype);
      const auto x = values(left), y = values(right), got = values(p.op(left, right));
      double worst = 0, farthest = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        long double exact = p.exact(x[i], y[i % 67]);
        if (p.op == logaddexp) exact -= 20;
        farthest = std::max(farthest, std::abs(got[i] - static_cast<double>(exact)));
        worst = std::max(worst, dtype == DType::kF32
                                    ? ulps(static_cast<float>(got[i]), static_cast<double>(exact))
                                    : ulps(got[i], static_cast<double>(exact)));
      }
      // The logarithm of a sum may be near 0, so its error is absolute: of numbers below 16.
      if (p.op == logaddexp || p.op == logaddexp2)
        CHECK(farthest <= (dtype == DType::kF32 ? 2e-6 : 4e-15));
      else
        CHECK(worst <= (dtype == DType::kF32 ? p.f32_ulps : f64_ulps(p.f64_ulps)));
      for (const Tensor& layout : layouts(left))
        CHECK(bits_of(p.op(layout, right)) == bits_of(p.op(left, right)));
    }
    // 16 bits are computed in f32 and rounded once.
    const Tensor half = cast(a, DType::kBF16), other = cast(b, DType::kBF16);
    CHECK(bits_of(p.op(half, other)) ==
          bits_of(cast(p.op(cast(half, DType::kF32), cast(other, DType::kF32)), DType::kBF16)));
    CHECK(p.op(zeros({0, 3}), ones({3})).shape() == Shape{0, 3});
    CHECK(values(p.op(2.0, doubles({3}))) == values(p.op(doubles({2}), 3.0)));
  }
}

TEST_CASE("functions of two tensors: zeros, infinities and NaN") {
  const std::vector<double> x = {0, -0.0, 1, -1, kInf, -kInf, kNaN};
  std::vector<double> a, b;
  for (double left : x) {
    for (double right : x) {
      a.push_back(left);
      b.push_back(right);
    }
  }
  const auto check = [&](BinaryFunction op, const std::function<double(double, double)>& exact) {
    std::vector<double> expected;
    for (std::size_t i = 0; i < a.size(); ++i) expected.push_back(exact(a[i], b[i]));
    check_same(values(op(doubles(a), doubles(b))), expected);
    const auto rounded = [](double value) {
      return static_cast<double>(static_cast<float>(value));
    };
    for (double& value : expected) value = rounded(value);
    check_same(values(op(cast(doubles(a), DType::kF32), cast(doubles(b), DType::kF32))), expected);
  };
  check(tessera::atan2, [](double y, double z) { return std::atan2(y, z); });
  check(tessera::hypot, [](double y, double z) { return std::hypot(y, z); });
  check(tessera::fmod, [](double y, double z) { return std::fmod(y, z); });
  check(xlogy, [](double y, double z) { return std::isnan(z) ? z : y == 0 ? 0 : y * std::log(z); });
  const auto log_of_sum = [&](BinaryFunction op) {
    const auto got = values(op(doubles(a), doubles(b)));
    for (std::size_t i = 0; i < a.size(); ++i) {
      INFO(a[i] << " " << b[i]);
      if (std::isnan(a[i]) || std::isnan(b[i])) CHECK(std::isnan(got[i]));
      if (std::isinf(a[i]) && !std::isnan(b[i])) CHECK(got[i] == std::max(a[i], b[i]));
    }
  };
  log_of_sum(logaddexp);
  log_of_sum(logaddexp2);
  const Tensor one_nan = doubles({kNaN, 1, kNaN}), other_nan = doubles({2, kNaN, kNaN});
  check_same(values(tessera::fmax(one_nan, other_nan)), {2, 1, kNaN});
  check_same(values(tessera::fmin(one_nan, other_nan)), {2, 1, kNaN});
  check_same(values(tessera::copysign(doubles({1, -2, 0, kInf}), doubles({-0.0, 3, -1, -kNaN}))),
             {-1, 2, -0.0, -kInf});
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const Tensor many = full({20}, 2, {.dtype = dtype});
    for (const double sign : {-1.0, 1.0}) {
      const Tensor signs = tessera::copysign(many, std::copysign(kNaN, sign));
      check_same(values(cast(signs, DType::kF64)), std::vector<double>(20, 2 * sign));
    }
  }
  CHECK(values(tessera::fmax(whole({1, 5}), 3)) == std::vector<double>{3, 5});
  CHECK(tessera::fmax(whole({1, 5}), 3).dtype() == DType::kI64);
  CHECK(tessera::atan2(whole({1}), whole({1})).dtype() == DType::kF32);
  CHECK(tessera::hypot(whole({3}), whole({4})).item<float>() == 5);
  CHECK(xlogy(whole({2}), 1).dtype() == DType::kF32);
}

TEST_CASE("deg2rad, rad2deg, signbit, nan_to_num") {
  CHECK(values(deg2rad(doubles({0, 180, -90}))) ==
        std::vector<double>{0, 3.14159265358979323846, -1.57079632679489661923});
  CHECK(values(rad2deg(doubles({0, 3.14159265358979323846}))) == std::vector<double>{0, 180});
  CHECK(deg2rad(whole({180})).item<float>() == 3.14159274f);
  CHECK(signbit(doubles({-1, -0.0, 0, 2, -kInf, kInf, std::copysign(kNaN, -1), kNaN}))
            .to_vector<bool>() == std::vector<bool>{1, 1, 0, 0, 1, 0, 1, 0});
  CHECK(signbit(whole({-3, 0, 3}, DType::kI32)).to_vector<bool>() == std::vector<bool>{1, 0, 0});
  const Tensor x = doubles({kNaN, kInf, -kInf, 1.5, -0.0});
  const double f64 = std::numeric_limits<double>::max();
  check_same(values(nan_to_num(x)), {0, f64, -f64, 1.5, -0.0});
  check_same(values(nan_to_num(x, {.nan = 7, .posinf = 8, .neginf = -9})), {7, 8, -9, 1.5, -0.0});
  const double f32 = std::numeric_limits<float>::max();
  check_same(values(nan_to_num(cast(x, DType::kF32), {.nan = kInf})), {kInf, f32, -f32, 1.5, -0.0});
  check_same(values(nan_to_num(cast(x, DType::kF16))), {0, 65504, -65504, 1.5, -0.0});
  const double bf16 = 0x1.fep127;
  check_same(values(nan_to_num(cast(x, DType::kBF16))), {0, bf16, -bf16, 1.5, -0.0});
  const Tensor integers = whole({1, 2});
  const Tensor copy = nan_to_num(integers);
  CHECK(numbers(copy) == numbers(integers));
  CHECK(copy.dtype() == DType::kI64);
  nan_to_num_(copy);
  for (const Tensor& layout : layouts(clone(x.view({5, 1}).expand({5, 3})))) {
    nan_to_num_(layout, {.nan = 2});
    check_same(values(layout.select(1, 2)), {2, f64, -f64, 1.5, -0.0});
  }
}

TEST_CASE("div with a rounding mode, fmod: integers and numbers") {
  const std::vector<std::int64_t> a = {7, -7, 7, -7, 6, 5, 0}, b = {3, 3, -3, -3, 3, 0, 4};
  for (DType dtype : {DType::kI64, DType::kI32}) {
    const Tensor x = whole(a, dtype), y = whole(b, dtype);
    const Tensor trunc = div(x, y, RoundingMode::kTrunc);
    CHECK(trunc.dtype() == dtype);
    CHECK(numbers(trunc) == std::vector<std::int64_t>{2, -2, -2, 2, 2, 0, 0});
    CHECK(numbers(div(x, y, RoundingMode::kFloor)) == numbers(floor_divide(x, y)));
    CHECK(numbers(tessera::fmod(x, y)) == std::vector<std::int64_t>{1, -1, 1, -1, 0, 5, 0});
  }
  const Tensor x = doubles({7.5, -7.5, 0, -0.0, 1}), y = doubles({2, 2, -3, 3, 0});
  check_same(values(div(x, y, RoundingMode::kTrunc)), {3, -3, -0.0, -0.0, kInf});
  check_same(values(div(x, y, RoundingMode::kFloor)), {3, -4, -0.0, -0.0, kInf});
  CHECK(values(div(7, doubles({2}), RoundingMode::kTrunc)) == std::vector<double>{3});
  CHECK(numbers(div(whole({std::numeric_limits<std::int64_t>::min()}), -1, RoundingMode::kTrunc)) ==
        std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min()});
}

TEST_CASE("bits of integers and bool") {
  const std::vector<std::int64_t> a = {12, -1, 0, 255, 7}, b = {10, 5, 3, 128, 0};
  for (DType dtype : {DType::kI64, DType::kI32, DType::kU8}) {
    const Tensor x = whole(a, dtype), y = whole(b, dtype);
    for (const Tensor& layout : layouts(x)) {
      const auto check = [&](const Tensor& got,
                             const std::function<std::int64_t(int, int)>& exact) {
        CHECK(got.dtype() == dtype);
        std::vector<std::int64_t> expected;
        for (std::size_t i = 0; i < a.size(); ++i)
          expected.push_back(exact(static_cast<int>(a[i]), static_cast<int>(b[i])));
        CHECK(numbers(got) == numbers(whole(expected, dtype)));
      };
      check(bitwise_and(layout, y), [](int p, int q) { return p & q; });
      check(bitwise_or(layout, y), [](int p, int q) { return p | q; });
      check(bitwise_xor(layout, y), [](int p, int q) { return p ^ q; });
      check(bitwise_not(layout), [](int p, int) { return ~p; });
      check(bitwise_left_shift(layout, 3), [](int p, int) { return p * 8; });
    }
    const auto in_place = [&](void (*op)(const Tensor&, const TensorOrNumber&),
                              BinaryFunction plain) {
      const Tensor written = clone(x);
      op(written, y);
      CHECK(numbers(written) == numbers(plain(x, y)));
    };
    in_place(bitwise_and_, bitwise_and);
    in_place(bitwise_or_, bitwise_or);
    in_place(bitwise_xor_, bitwise_xor);
    const Tensor inverted = clone(x);
    bitwise_not_(inverted);
    CHECK(numbers(inverted) == numbers(bitwise_not(x)));
  }
  const Tensor p = Tensor::from_vector<bool>({0, 0, 1, 1}, {4}),
               q = Tensor::from_vector<bool>({0, 1, 0, 1}, {4});
  CHECK(bitwise_and(p, q).to_vector<bool>() == std::vector<bool>{0, 0, 0, 1});
  CHECK(bitwise_or(p, q).to_vector<bool>() == std::vector<bool>{0, 1, 1, 1});
  CHECK(bitwise_xor(p, q).to_vector<bool>() == std::vector<bool>{0, 1, 1, 0});
  CHECK(bitwise_not(p).to_vector<bool>() == std::vector<bool>{1, 1, 0, 0});
  CHECK(bitwise_and(p, whole({3})).dtype() == DType::kI64);
}

// As PyTorch for integers of each width: no bits are left.
TEST_CASE("shifts by too much or by a negative number") {
  const Tensor a = whole({1, -1, 5}), far = whole({64, 100, -1});
  CHECK(numbers(bitwise_left_shift(a, far)) == std::vector<std::int64_t>{0, 0, 0});
  CHECK(numbers(bitwise_right_shift(a, far)) == std::vector<std::int64_t>{0, -1, 0});
  CHECK(numbers(bitwise_right_shift(whole({-8, 9}), 2)) == std::vector<std::int64_t>{-2, 2});
  CHECK(numbers(bitwise_left_shift(whole({1, 3}, DType::kI32), 31)) ==
        std::vector<std::int64_t>{-2147483648, -2147483648});
  CHECK(numbers(bitwise_left_shift(whole({1}, DType::kI32), 40)) == std::vector<std::int64_t>{0});
  CHECK(numbers(bitwise_left_shift(whole({255}, DType::kU8), 4)) == std::vector<std::int64_t>{240});
  CHECK(thrown<InvalidArgument>([] { bitwise_and(ones({2}), whole({1})); }) ==
        "[bitwise_and] needs integers or bool, got f32; cast it first");
  CHECK(thrown<InvalidArgument>([] { bitwise_not(ones({2})); }) ==
        "[bitwise_not] needs integers or bool, got f32; cast it first");
  CHECK(thrown<InvalidArgument>([] { bitwise_or_(whole({1}), Tensor()); }) ==
        "[bitwise_or_] the second operand is undefined; pass a tensor");
  const Tensor flag = eq(ones({2}), 1);
  CHECK(thrown<InvalidArgument>([&] { bitwise_left_shift(flag, flag); }) ==
        "[bitwise_left_shift] a bool has no bits to shift; cast one of them to an integer");
}

TEST_CASE("add and sub with alpha") {
  const Tensor x = doubles({1, 2, 3}), y = Tensor::from_vector<double>({10, 20}, {2, 1});
  CHECK(values(add(x, y, 0.5)) == std::vector<double>{6, 7, 8, 11, 12, 13});
  CHECK(values(sub(x, y, 2)) == std::vector<double>{-19, -18, -17, -39, -38, -37});
  CHECK(values(add(1, x, -1)) == std::vector<double>{0, -1, -2});
  CHECK(values(sub(x, 1, 3)) == std::vector<double>{-2, -1, 0});
  CHECK(numbers(add(whole({1, 2}), whole({3, 4}), 2)) == std::vector<std::int64_t>{7, 10});
  CHECK(numbers(sub(whole({9}, DType::kU8), whole({2}, DType::kU8), 3)) ==
        std::vector<std::int64_t>{3});
  CHECK(sub(whole({9}, DType::kU8), whole({2}, DType::kU8), 3).dtype() == DType::kU8);
  CHECK(add(cast(x, DType::kBF16), x.select(0, 0), 2).dtype() == DType::kBF16);
  // Rounded after each step, as the sum of a product.
  const Tensor f = spread_tensor<float>({701}), g = spread_tensor<float>({701}, 0.1, 3);
  CHECK(bits_of(add(f, g, 0.3)) == bits_of(add(f, mul(g, 0.3))));
  for (const Tensor& layout : layouts(spread_tensor<float>({3, 701}))) {
    const Tensor sum = add(layout, g, 0.3), difference = sub(layout, g, 0.3);
    add_(layout, g, 0.3);
    CHECK(bits_of(layout) == bits_of(sum));
    copy_(layout, spread_tensor<float>({3, 701}));
    sub_(layout, g, 0.3);
    CHECK(bits_of(layout) == bits_of(difference));
  }
  CHECK(thrown<InvalidArgument>([] { add(arange(3), arange(3), 0.5); }) ==
        "[add] the number 0.5 is not a whole number up to 2^53, which i64 is computed with; cast "
        "to a floating dtype first");
  const Tensor flag = eq(x, 1);
  CHECK(thrown<InvalidArgument>([&] { sub(flag, flag, 2); }) ==
        "[sub] the sum of two bools takes no alpha; cast one of them");
}

TEST_CASE("clamp_min and clamp_max") {
  const Tensor x = doubles({-2, 0.5, kNaN, 9}), low = Tensor::from_vector<double>({0, 1}, {2, 1});
  check_same(values(clamp_min(x, low)), {0, 0.5, kNaN, 9, 1, 1, kNaN, 9});
  check_same(values(clamp_max(x, low)), {-2, 0, kNaN, 0, -2, 0.5, kNaN, 1});
  check_same(values(clamp_min(x, 0)), {0, 0.5, kNaN, 9});
  CHECK(std::isnan(values(clamp_max(doubles({1}), kNaN))[0]));
  CHECK(numbers(clamp_max(arange(4), 2)) == std::vector<std::int64_t>{0, 1, 2, 2});
  CHECK(clamp_min(arange(4), 0.5).dtype() == DType::kF32);
  clamp_min_(x, -1);
  clamp_max_(x, doubles({5, 0, 1, 8}));
  check_same(values(x), {-1, 0, kNaN, 8});
}

TEST_CASE("isclose, allclose, equal") {
  const Tensor a = doubles({1, 1, 0, kInf, kInf, kNaN, -kInf, kInf}),
               b = doubles({1 + 9e-6, 1 + 2e-5, 9e-9, kInf, 1, kNaN, kInf, kNaN});
  CHECK(isclose(a, b).to_vector<bool>() == std::vector<bool>{1, 0, 1, 1, 0, 0, 0, 0});
  CHECK(isclose(a, b, {.equal_nan = true}).to_vector<bool>() ==
        std::vector<bool>{1, 0, 1, 1, 0, 1, 0, 0});
  CHECK(isclose(a, b, {.rtol = 0, .atol = 3e-5}).to_vector<bool>() ==
        std::vector<bool>{1, 1, 1, 1, 0, 0, 0, 0});
  CHECK(isclose(whole({100, 200}, DType::kU8), whole({101, 100}, DType::kU8), {.rtol = 0.01})
            .to_vector<bool>() == std::vector<bool>{1, 0});
  const std::int64_t big = std::int64_t{1} << 40;
  CHECK_FALSE(allclose(whole({big}), whole({big + 1}), {.rtol = 0}));
  // Not numbers of f64, and differences beyond i64.
  const std::int64_t beyond = (std::int64_t{1} << 53) + 1;
  const Tensor close = whole({beyond, -beyond}), near = whole({beyond - 1, 1 - beyond});
  CHECK_FALSE(any(isclose(close, near, {.rtol = 0, .atol = 0})).item<bool>());
  CHECK_FALSE(any(isclose(near, close, {.rtol = 0, .atol = 0.5})).item<bool>());
  CHECK(allclose(close, near, {.rtol = 0, .atol = 1}));
  CHECK(allclose(close, near));
  const Tensor least = whole({std::numeric_limits<std::int64_t>::min()}),
               most = whole({std::numeric_limits<std::int64_t>::max()});
  CHECK_FALSE(allclose(least, most, {.rtol = 1}));
  CHECK(allclose(least, most, {.rtol = 2.1}));
  CHECK_FALSE(allclose(most, least, {.rtol = 0, .atol = 1}));
  CHECK_FALSE(allclose(most, sub(most, 1), {.rtol = 0, .atol = 0.5}));
  CHECK(isclose(whole({0, 1, 1}, DType::kBool), whole({1, 0, 1}, DType::kBool)).to_vector<bool>() ==
        std::vector<bool>{0, 0, 1});
  // The tolerance is relative to the second operand.
  CHECK(allclose(ones({1}), full({1}, 2), {.rtol = 0.5, .atol = 0}));
  CHECK_FALSE(allclose(full({1}, 2), ones({1}), {.rtol = 0.5, .atol = 0}));
  CHECK(allclose(cast(a.slice(0, 0, 1), DType::kBF16), ones({3, 1}), {.rtol = 0, .atol = 0}));
  CHECK(allclose(ones({0, 3}), ones({3})));
  CHECK(equal(a.slice(0, 0, 5), clone(a.slice(0, 0, 5))));
  CHECK_FALSE(equal(a, a));  // NaN
  CHECK_FALSE(equal(ones({3}), ones({3, 1})));
  CHECK_FALSE(equal(ones({3}), doubles({1, 1, 2})));
  CHECK(equal(ones({3}), whole({1, 1, 1})));
  CHECK(equal(ones({0}), zeros({0})));
  const Tensor n = zeros({2}, {.device = kNull});
  CHECK(allclose(n, n));
  CHECK(equal(n, n));
  CHECK_FALSE(equal(n, zeros({3}, {.device = kNull})));
  CHECK(thrown<InvalidArgument>([&] { isclose(a, b, {.rtol = -1}); }) ==
        "[isclose] rtol is -1 and atol is 1e-08; neither may be negative");
  CHECK(thrown<InvalidArgument>([&] { equal(a, Tensor()); }) ==
        "[equal] the second operand is undefined; pass a tensor");
  CHECK_THROWS_AS(allclose(ones({2}), ones({3})), InvalidArgument);
}

}  // namespace
}  // namespace tessera
