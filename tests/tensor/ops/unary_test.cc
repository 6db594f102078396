#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <functional>

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

struct UnaryCase {
  const char* name;
  Tensor (*op)(const Tensor&);
  std::function<double(double)> exact;
  double low, high;
  double f32_ulps, f64_ulps;  // tolerances
};

double exact_gelu(double x) {
  return static_cast<double>(x * 0.5L * std::erfc(-static_cast<long double>(x) / std::sqrt(2.0L)));
}

double exact_gelu_tanh(double x) {
  const double u = std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}

// A function of <cmath> in long double.
template <long double (*function)(long double)>
double of(double x) {
  return static_cast<double>(function(x));
}

constexpr long double kPi = 3.14159265358979323846264338327950288L;

double exact_sinc(double x) {
  const long double angle = kPi * x;
  return x == 0 ? 1 : static_cast<double>(std::sin(angle) / angle);
}

// The zero of erf(y) - x by Newton's method.
double exact_erfinv(double x) {
  const long double a = std::abs(x);
  long double y = a < 0.9L ? a : std::sqrt(-std::log(1 - a));
  for (int step = 0; step < 60; ++step)
    y -= ((1 - a) - std::erfc(y)) / (2 / std::sqrt(kPi) * std::exp(-y * y));
  return static_cast<double>(std::copysign(y, x));
}

// By its recurrence and Stirling's series at 40 and more.
double exact_digamma(double x) {
  long double at = x, sum = 0;
  for (; at < 40; ++at) sum -= 1 / at;
  const long double z = 1 / (at * at);
  const long double series = z * (1 / 12.0L - z * (1 / 120.0L - z * (1 / 252.0L - z / 240)));
  return static_cast<double>(sum + std::log(at) - 0.5L / at - series);
}

std::vector<UnaryCase> function_cases() {
  return {
      {"exp2", tessera::exp2, of<::exp2l>, -140, 127, 0.51, 1},
      {"log2", tessera::log2, of<::log2l>, 0, 50, 0.51, 1},
      {"log10", tessera::log10, of<::log10l>, 0, 50, 0.51, 2},
      {"tan", tessera::tan, of<::tanl>, -1e4, 1e4, 0.51, 1},
      {"asin", tessera::asin, of<::asinl>, -1, 1, 0.51, 1},
      {"acos", tessera::acos, of<::acosl>, -1, 1, 0.51, 1},
      {"atan", tessera::atan, of<::atanl>, -9, 9, 0.51, 1},
      {"sinh", tessera::sinh, of<::sinhl>, -88, 88, 0.51, 2},
      {"sinh near 0", tessera::sinh, of<::sinhl>, -0.02, 0.02, 0.51, 2},
      {"cosh", tessera::cosh, of<::coshl>, -88, 88, 0.51, 2},
      {"asinh", tessera::asinh, of<::asinhl>, -50, 50, 0.51, 2},
      {"asinh near 0", tessera::asinh, of<::asinhl>, -0.02, 0.02, 0.51, 2},
      {"acosh", tessera::acosh, of<::acoshl>, 1, 50, 0.51, 2.5},
      {"acosh near 1", tessera::acosh, of<::acoshl>, 1, 1.001, 0.51, 2.5},
      {"atanh", tessera::atanh, of<::atanhl>, -1, 1, 0.51, 2},
      {"atanh near 0", tessera::atanh, of<::atanhl>, -0.02, 0.02, 0.51, 2},
      {"sinc", sinc, exact_sinc, -0.9, 0.9, 0.51, 2.5},
      {"erfc", tessera::erfc, of<::erfcl>, -4, 9, 5, 4},
      {"erfinv", erfinv, exact_erfinv, -1, 1, 0.6, 2.5},
      {"erfinv near 1", erfinv, exact_erfinv, 0.999, 0.99999, 0.6, 2.5},
      {"lgamma", tessera::lgamma, of<::lgammal>, 0.01, 0.9, 0.51, 4},
      {"lgamma of more", tessera::lgamma, of<::lgammal>, 2.5, 90, 0.51, 4},
      {"digamma", digamma, exact_digamma, 2, 90, 0.51, 20},
      {"digamma below 0", digamma, exact_digamma, -0.4, -0.01, 0.51, 20},
  };
}

std::vector<UnaryCase> joined(std::vector<UnaryCase> a, const std::vector<UnaryCase>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<UnaryCase>& unary_cases() {
  static const std::vector<UnaryCase> cases = joined(
      function_cases(),
      {
          {"neg", neg, [](double x) { return -x; }, -9, 9, 0, 0},
          {"abs", tessera::abs, [](double x) { return std::abs(x); }, -9, 9, 0, 0},
          {"exp", tessera::exp, [](double x) { return std::exp(x); }, -103.5, 88.7, 1.1, 1},
          {"log", tessera::log, [](double x) { return std::log(x); }, 0, 50, 1.1, 1},
          {"sqrt", tessera::sqrt, [](double x) { return std::sqrt(x); }, 0, 50, 0.51, 0.51},
          {"square", square, [](double x) { return x * x; }, -9, 9, 0.51, 0.51},
          {"tanh", tessera::tanh, [](double x) { return std::tanh(x); }, -10, 10, 2, 2},
          {"relu", relu, [](double x) { return std::max(x, 0.0); }, -9, 9, 0, 0},
          {"gelu", gelu, exact_gelu, -12.5, 13, 6, 5},
          {"sign", sign, [](double x) { return x > 0   ? 1.0
                                               : x < 0 ? -1.0
                                                       : 0.0; }, -9, 9, 0, 0},
          {"reciprocal", reciprocal, [](double x) { return 1 / x; }, -9, 9, 0.51, 0.51},
          {"expm1", tessera::expm1, [](double x) { return std::expm1(x); }, -20, 88.7, 2, 1},
          {"expm1 near 0", tessera::expm1, [](double x) { return std::expm1(x); }, -0.01, 0.01, 2,
           1},
          {"log1p", tessera::log1p, [](double x) { return std::log1p(x); }, -0.999, 50, 2, 1},
          {"log1p near 0", tessera::log1p, [](double x) { return std::log1p(x); }, -0.01, 0.01, 2,
           1},
          {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0, 50, 1.5, 1.5},
          {"sin", tessera::sin, [](double x) { return std::sin(x); }, -1e5, 1e5, 0.51, 1},
          {"cos", tessera::cos, [](double x) { return std::cos(x); }, -1e5, 1e5, 0.51, 1},
          {"erf", tessera::erf, [](double x) { return std::erf(x); }, -5, 5, 3, 1},
          {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -87, 30, 2.5, 2},
          {"gelu_tanh", gelu_tanh, exact_gelu_tanh, -5, 13, 45, 45},
          {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }, -80, 30, 4, 3},
          {"softplus", softplus,
           [](double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }, -80, 40,
           2, 2},
          {"frac", frac, [](double x) { return x - std::trunc(x); }, -9, 9, 0, 0},
          {"floor", tessera::floor, [](double x) { return std::floor(x); }, -9, 9, 0, 0},
          {"ceil", tessera::ceil, [](double x) { return std::ceil(x); }, -9, 9, 0, 0},
          {"round", tessera::round, [](double x) { return std::nearbyint(x); }, -9, 9, 0, 0},
          {"trunc", tessera::trunc, [](double x) { return std::trunc(x); }, -9, 9, 0, 0},
      });
  return cases;
}

template <class T>
double worst_ulps(const UnaryCase& c, std::int64_t count) {
  const auto x = spread<T>(count, c.low, c.high);
  const auto y = c.op(Tensor::from_vector(x, {count})).template to_vector<T>();
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, ulps(y[i], c.exact(static_cast<double>(x[i]))));
  return worst;
}

TEST_CASE("unary operations: distance to the exact value") {
  for (const UnaryCase& c : unary_cases()) {
    INFO(c.name);
    const double f32 = worst_ulps<float>(c, 300'001);
    const double f64 = worst_ulps<double>(c, 10'001);
    INFO("f32 " << f32 << " ulp, f64 " << f64 << " ulp");
    CHECK(f32 <= c.f32_ulps);
    CHECK(f64 <= f64_ulps(c.f64_ulps));
  }
}

std::vector<float> at(Tensor (*op)(const Tensor&), const std::vector<float>& x) {
  return op(Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())})).to_vector<float>();
}

TEST_CASE("unary operations: special values") {
  const auto inf = static_cast<float>(kInf), nan = static_cast<float>(kNaN);
  CHECK(same_bits(at(tessera::exp, {-inf, inf, 0, -200, 200}), {0, inf, 1, 0, inf}));
  CHECK(same_bits(at(tessera::log, {0, inf, 1}), {-inf, inf, 0}));
  CHECK(std::isnan(at(tessera::log, {-1})[0]));
  CHECK(same_bits(at(tessera::log, {1e-40f}),
                  {static_cast<float>(std::log(static_cast<double>(1e-40f)))}));
  CHECK(same_bits(at(tessera::tanh, {-inf, inf, 0, -0.0f}), {-1, 1, 0, -0.0f}));
  CHECK(same_bits(at(relu, {-inf, inf, 2}), {0, inf, 2}));
  CHECK(same_bits(at(gelu, {-inf, inf, 0}), {-0.0f, inf, 0}));
  for (const UnaryCase& c : unary_cases()) {
    INFO(c.name);
    CHECK(std::isnan(at(c.op, {nan})[0]));
    CHECK(std::isnan(c.op(Tensor::from_vector<double>({kNaN}, {1})).item<double>()));
  }
}

TEST_CASE("gelu of f32 is exact to 6 ulp where 1 + erf(x) would have lost everything") {
  const auto y = at(gelu, {-5, -8, -10, -12.5f});
  CHECK(ulps(y[0], exact_gelu(-5)) <= 6);
  CHECK(ulps(y[1], exact_gelu(-8)) <= 6);
  CHECK(ulps(y[2], exact_gelu(-10)) <= 6);
  CHECK(ulps(y[3], exact_gelu(-12.5)) <= 6);
}

template <class T>
void check_bits_of_splits(const UnaryCase& c) {
  const Tensor x = spread_tensor<T>({1003}, c.low, c.high);
  const auto whole = c.op(x).template to_vector<T>();
  for (std::int64_t cut : {1, 3, 7, 8, 16, 500, 1001}) {
    auto parts = c.op(x.slice(0, 0, cut)).template to_vector<T>();
    const auto rest = c.op(x.slice(0, cut, 1003)).template to_vector<T>();
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(same_bits(parts, whole));
  }
  for (const Tensor& layout : layouts(x.view({17, 59})))
    CHECK(same_bits(c.op(layout).template to_vector<T>(), whole));
}

TEST_CASE("elementwise operations: equal bits for any split and layout") {
  for (const UnaryCase& c : unary_cases()) {
    INFO(c.name);
    check_bits_of_splits<float>(c);
    check_bits_of_splits<double>(c);
  }
}

TEST_CASE("elementwise operations: equal bits for any number of threads") {
  const Tensor x = spread_tensor<float>({3, 50'003}), y = spread_tensor<float>({3, 50'003}, 0.5, 3);
  for (const UnaryCase& c : unary_cases()) {
    INFO(c.name);
    CHECK(same_for_any_threads([&] { return c.op(x).to_vector<float>(); }));
  }
  CHECK(same_for_any_threads([&] { return div(x, y).to_vector<float>(); }));
  CHECK(same_for_any_threads([&] { return gelu_backward(x, y).to_vector<float>(); }));
  CHECK(same_for_any_threads([&] { return mul(x, 1.7).to_vector<float>(); }));
}

// The guarantee for 16-bit dtypes: the f32 result, rounded once. On a GPU, whose formulas for such
// results are shorter, it may be a neighbour of that.
template <class T>
void check_rounded_from_f32(const UnaryCase& c) {
  const Tensor x = cast(spread_tensor<float>({5, 211}, c.low, c.high), dtype_of<T>);
  const Tensor expected = cast(c.op(cast(x, DType::kF32)), dtype_of<T>);
  for (const Tensor& layout : layouts(x)) {
    const Tensor y = c.op(layout);
    REQUIRE(y.dtype() == dtype_of<T>);
    const std::vector<T> got = y.to_vector<T>(), wanted = expected.to_vector<T>();
    int units = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      units = std::max(units, std::abs(int{got[i].bits} - int{wanted[i].bits}));
    CHECK(units <= (default_device().is_cpu() ? 0 : 1));
  }
}

TEST_CASE("unary operations: 16-bit dtypes are computed in f32 and rounded once") {
  for (const UnaryCase& c : unary_cases()) {
    INFO(c.name);
    check_rounded_from_f32<BFloat16>(c);
    check_rounded_from_f32<Float16>(c);
  }
}

TEST_CASE("unary operations on integers and bool") {
  const Tensor i = Tensor::from_vector<std::int32_t>({-3, 0, 4}, {3});
  CHECK(neg(i).to_vector<std::int32_t>() == std::vector<std::int32_t>{3, 0, -4});
  CHECK(tessera::abs(i).to_vector<std::int32_t>() == std::vector<std::int32_t>{3, 0, 4});
  CHECK(sign(i).to_vector<std::int32_t>() == std::vector<std::int32_t>{-1, 0, 1});
  CHECK(square(i).to_vector<std::int32_t>() == std::vector<std::int32_t>{9, 0, 16});
  CHECK(relu(i).to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 0, 4});
  CHECK(tessera::floor(i).to_vector<std::int32_t>() == i.to_vector<std::int32_t>());
  CHECK(tessera::exp(i).to_vector<float>() ==
        tessera::exp(cast(i, DType::kF32)).to_vector<float>());
  const Tensor b = Tensor::from_vector<bool>({true, false}, {2});
  CHECK(sigmoid(b).dtype() == DType::kF32);
  CHECK(tessera::sqrt(b).to_vector<float>() == std::vector<float>{1, 0});
  CHECK(logical_not(b).to_vector<bool>() == std::vector<bool>{false, true});
  CHECK(square(b).dtype() == DType::kI64);
  CHECK(square(b).to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0});
  CHECK(square(Tensor::from_vector<std::uint8_t>({3}, {1})).dtype() == DType::kU8);
  CHECK(thrown<InvalidArgument>([&] { square_(b); }) ==
        "[square_] the result is i64 and cannot be written into bool; cast the tensor first");
  CHECK(thrown<InvalidArgument>([&] { neg(b); }) ==
        "[neg] a bool has no negative; use logical_not, or cast it");
  CHECK(thrown<InvalidArgument>([&] { neg_(b); }) ==
        "[neg_] a bool has no negative; use logical_not, or cast it");
}

TEST_CASE("isnan, isinf, isfinite, logical_not") {
  const Tensor x = Tensor::from_vector<double>({0, -0.0, 3, kNaN, kInf, -kInf}, {6});
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor y = cast(x, dtype);
    CHECK(isnan(y).to_vector<bool>() == std::vector<bool>{0, 0, 0, 1, 0, 0});
    CHECK(isinf(y).to_vector<bool>() == std::vector<bool>{0, 0, 0, 0, 1, 1});
    CHECK(isfinite(y).to_vector<bool>() == std::vector<bool>{1, 1, 1, 0, 0, 0});
    CHECK(logical_not(y).to_vector<bool>() == std::vector<bool>{1, 1, 0, 0, 0, 0});
  }
  CHECK(isnan(arange(2)).to_vector<bool>() == std::vector<bool>{0, 0});
  CHECK(isfinite(arange(2)).to_vector<bool>() == std::vector<bool>{1, 1});
}

TEST_CASE("unary operations in place") {
  using InPlace = void (*)(const Tensor&);
  const std::vector<std::pair<InPlace, Tensor (*)(const Tensor&)>> cases = {
      {neg_, neg},
      {abs_, tessera::abs},
      {square_, square},
      {relu_, relu},
      {exp_, tessera::exp},
      {exp2_, tessera::exp2},
      {log2_, tessera::log2},
      {log10_, tessera::log10},
      {erfinv_, erfinv},
      {frac_, frac},
      {log_, tessera::log},
      {sqrt_, tessera::sqrt},
      {rsqrt_, rsqrt},
      {reciprocal_, reciprocal},
      {tanh_, tessera::tanh},
      {sigmoid_, sigmoid}};
  for (const auto& [in_place, op] : cases) {
    for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      for (const Tensor& x : layouts(cast(spread_tensor<float>({3, 700}, 0.1, 3), dtype))) {
        const auto version = x.version();
        const Tensor expected = op(x);
        in_place(x);
        CHECK(bits_of(x) == bits_of(expected));
        CHECK(x.version() == version + 1);
      }
    }
  }
  const Tensor i = arange(3);
  neg_(i);
  CHECK(i.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, -1, -2});
  CHECK(thrown<InvalidArgument>([&] { exp_(i); }) ==
        "[exp_] the result is f32 and cannot be written into i64; cast the tensor first");
  CHECK(thrown<InvalidArgument>([&] {
          exp_(zeros({1, 2}).expand({3, 2}));
        }) ==
        "[exp_] dim 0 of the tensor written to repeats one element 3 times; clone() it first");
}

// The derivative of f at x by differences, times dy.
double slope_at(double (*f)(double), double x, double dy) {
  return dy * (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;
}

TEST_CASE("derivatives of activations written over their operand have the same bits") {
  using Derivative = Tensor (*)(const Tensor&, const Tensor&);
  using InPlace = void (*)(const Tensor&, const Tensor&);
  for (const auto& [derivative, in_place] :
       {std::pair<Derivative, InPlace>(gelu_backward, gelu_backward_),
        {gelu_tanh_backward, gelu_tanh_backward_},
        {silu_backward, silu_backward_}}) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      std::vector<double> at(1001), slopes(1001);
      for (std::size_t i = 0; i < at.size(); ++i) {
        at[i] = 0.013 * static_cast<double>(i) - 6;
        slopes[i] = 1 - 0.003 * static_cast<double>(i);
      }
      const Tensor x = cast(Tensor::from_vector(at, {1001}), dtype),
                   dy = cast(Tensor::from_vector(slopes, {1001}), dtype),
                   expected = derivative(dy, x);
      in_place(x, dy);
      CHECK(cast(x, DType::kF64).to_vector<double>() ==
            cast(expected, DType::kF64).to_vector<double>());
    }
  }
}

TEST_CASE("derivatives in one pass") {
  struct Case {
    Tensor (*backward)(const Tensor&, const Tensor&);
    double (*f)(double);
    bool of_result;
  };
  const Case cases[] = {
      {gelu_tanh_backward, exact_gelu_tanh, false},
      {silu_backward, [](double x) { return x / (1 + std::exp(-x)); }, false},
      {softplus_backward, [](double x) { return std::log1p(std::exp(x)); }, false},
      {tanh_backward, [](double x) { return std::tanh(x); }, true},
      {sigmoid_backward, [](double x) { return 1 / (1 + std::exp(-x)); }, true}};
  const std::vector<double> x = {-3, -0.5, 0, 1e-3, 0.7, 4}, dy = {1, 2, 3, 4, 5, 6};
  for (const Case& c : cases) {
    std::vector<double> at = x;
    if (c.of_result) std::transform(x.begin(), x.end(), at.begin(), c.f);
    const auto g = c.backward(Tensor::from_vector(dy, {6}), Tensor::from_vector(at, {6}));
    for (std::size_t i = 0; i < x.size(); ++i)
      CHECK(g.to_vector<double>()[i] ==
            Approx(slope_at(c.f, x[i], dy[i])).epsilon(1e-7).margin(1e-8));
  }
  const Tensor ends =
      Tensor::from_vector<float>({-static_cast<float>(kInf), static_cast<float>(kInf)}, {2});
  CHECK(silu_backward(ones({2}), ends).to_vector<float>() == std::vector<float>{0, 1});
  CHECK(gelu_tanh_backward(ones({2}), ends).to_vector<float>() == std::vector<float>{0, 1});
}

TEST_CASE("derivatives of relu and gelu") {
  const std::vector<double> x = {-3, -0.5, 0, 1e-3, 0.7, 4};
  const std::vector<double> dy = {1, 2, 3, 4, 5, 6};
  const Tensor tx = Tensor::from_vector(x, {6}), tdy = Tensor::from_vector(dy, {6});
  CHECK(relu_backward(tdy, tx).to_vector<double>() == std::vector<double>{0, 0, 0, 4, 5, 6});
  const auto g = gelu_backward(tdy, tx).to_vector<double>();
  const auto g32 = gelu_backward(cast(tdy, DType::kF32), cast(tx, DType::kF32)).to_vector<float>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double h = 1e-5;
    const double slope = dy[i] * (exact_gelu(x[i] + h) - exact_gelu(x[i] - h)) / (2 * h);
    CHECK(g[i] == Approx(slope).epsilon(1e-8).margin(1e-9));
    CHECK(g32[i] == Approx(g[i]).epsilon(1e-6));
  }
  const auto inf = static_cast<float>(kInf);
  const Tensor ends = Tensor::from_vector<float>({-inf, inf}, {2});
  CHECK(gelu_backward(ones({2}), ends).to_vector<float>() == std::vector<float>{0, 1});
  // NaN does not stop a gradient; more elements than any vector register holds.
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor at = full({67}, kNaN, {.dtype = dtype});
    const Tensor slope = cast(spread_tensor<float>({67}, -2, 2), dtype);
    CHECK(bits_of(relu_backward(slope, at)) == bits_of(slope));
  }
}

}  // namespace
}  // namespace tessera
