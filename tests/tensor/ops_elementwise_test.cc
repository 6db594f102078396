#include "tessera/tensor/ops_elementwise.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops_create.h"
#include "tessera/tests/tensor/ops_support.h"
#include "tessera/tests/tensor/throws.h"

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
  double f32_ulps, f64_ulps;  // allowed
};

double exact_gelu(double x) {
  return static_cast<double>(x * 0.5L * std::erfc(-static_cast<long double>(x) / std::sqrt(2.0L)));
}

const std::vector<UnaryCase>& unary_cases() {
  static const std::vector<UnaryCase> cases = {
      {"neg", neg, [](double x) { return -x; }, -9, 9, 0, 0},
      {"abs", tessera::abs, [](double x) { return std::abs(x); }, -9, 9, 0, 0},
      {"exp", tessera::exp, [](double x) { return std::exp(x); }, -103.5, 88.7, 1.1, 1},
      {"log", tessera::log, [](double x) { return std::log(x); }, 0, 50, 1.1, 1},
      {"sqrt", tessera::sqrt, [](double x) { return std::sqrt(x); }, 0, 50, 0.51, 0.51},
      {"square", square, [](double x) { return x * x; }, -9, 9, 0.51, 0.51},
      {"tanh", tessera::tanh, [](double x) { return std::tanh(x); }, -10, 10, 2, 2},
      {"relu", relu, [](double x) { return std::max(x, 0.0); }, -9, 9, 0, 0},
      {"gelu", gelu, exact_gelu, -12.5, 13, 5, 5},
  };
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
    CHECK(f64 <= c.f64_ulps);
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

TEST_CASE("gelu of f32 is exact to 5 ulp where 1 + erf(x) would have lost everything") {
  const auto y = at(gelu, {-5, -8, -10, -12.5f});
  CHECK(ulps(y[0], exact_gelu(-5)) <= 5);
  CHECK(ulps(y[1], exact_gelu(-8)) <= 5);
  CHECK(ulps(y[2], exact_gelu(-10)) <= 5);
  CHECK(ulps(y[3], exact_gelu(-12.5)) <= 5);
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

// The element of `x`, of a shape that broadcasts to `shape`, at position i of `shape`.
template <class T>
T broadcast_at(const std::vector<T>& x, const Shape& from, const Shape& shape, std::int64_t i) {
  std::int64_t index = 0, step = 1;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    const int own = d - (shape.ndim() - from.ndim());
    const std::int64_t at = i % shape[d];
    i /= shape[d];
    if (own < 0) continue;
    index += (from[own] == 1 ? 0 : at) * step;
    step *= from[own];
  }
  return x[static_cast<std::size_t>(index)];
}

template <class T, class R>
void check_binary(Tensor (*op)(const Tensor&, const Tensor&), R (*exact)(T, T)) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{}, {}},     {{5}, {5}},       {{4, 7}, {7}},    {{4, 1}, {1, 7}},  {{3, 1, 5}, {4, 1}},
      {{2, 3}, {}}, {{0, 3}, {1, 3}}, {{3, 0}, {3, 1}}, {{6, 11}, {6, 1}}, {{1}, {9}},
  };
  for (const auto& [sa, sb] : shapes) {
    const auto a = spread<T>(sa.numel(), 1, 9), b = spread<T>(sb.numel(), 1, 7);
    const Shape shape = broadcast_shapes(sa, sb, "test");
    for (const Tensor& ta : layouts(Tensor::from_vector(a, sa))) {
      for (const Tensor& tb : layouts(Tensor::from_vector(b, sb))) {
        const Tensor y = op(ta, tb);
        REQUIRE(y.shape() == shape);
        REQUIRE(y.is_contiguous());
        std::vector<R> expected;
        for (std::int64_t i = 0; i < shape.numel(); ++i) {
          expected.push_back(exact(broadcast_at(a, sa, shape, i), broadcast_at(b, sb, shape, i)));
        }
        CHECK(same_bits(y.to_vector<R>(), expected));
      }
    }
  }
}

template <class T>
void check_arithmetic() {
  check_binary<T, T>(add, [](T a, T b) { return static_cast<T>(a + b); });
  check_binary<T, T>(sub, [](T a, T b) { return static_cast<T>(a - b); });
  check_binary<T, T>(mul, [](T a, T b) { return static_cast<T>(a * b); });
  check_binary<T, std::uint8_t>(equal, [](T a, T b) { return static_cast<std::uint8_t>(a == b); });
}

TEST_CASE("binary operations: values under broadcasting, in every dtype and layout") {
  check_arithmetic<float>();
  check_arithmetic<double>();
  check_arithmetic<std::int64_t>();
  check_arithmetic<std::uint8_t>();
  check_binary<float, float>(div, [](float a, float b) { return a / b; });
  check_binary<double, double>(div, [](double a, double b) { return a / b; });
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
}

TEST_CASE("add and mul with a number") {
  const Tensor x = Tensor::from_vector<float>({1, 2, 3}, {3});
  CHECK(add(x, 0.5).to_vector<float>() == std::vector<float>{1.5f, 2.5f, 3.5f});
  CHECK(mul(x, -2).to_vector<float>() == std::vector<float>{-2, -4, -6});
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  const Tensor i = Tensor::from_vector<std::int64_t>({big}, {1});
  CHECK(add(i, 2).item<std::int64_t>() == big + 2);
  CHECK(mul(i, 3).item<std::int64_t>() == big * 3);
  CHECK(thrown<InvalidArgument>([&] { add(i, 0.5); }) ==
        "[add] the number 0.5 is not a whole number that i64 tensors can be computed with; cast to "
        "a floating dtype "
        "first");
}

TEST_CASE("cast: every pair of dtypes; floating to integer truncates and clamps") {
  const Tensor x = Tensor::from_vector<double>({-1.75, 2.5, 300, kNaN, kInf, -kInf}, {6});
  CHECK(cast(x, DType::kI64).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{-1, 2, 300, 0, std::numeric_limits<std::int64_t>::max(),
                                  std::numeric_limits<std::int64_t>::min()});
  CHECK(cast(x, DType::kU8).to_vector<std::uint8_t>() ==
        std::vector<std::uint8_t>{0, 2, 255, 0, 255, 0});
  for (DType from : {DType::kF32, DType::kF64, DType::kI64, DType::kU8}) {
    for (DType to : {DType::kF32, DType::kF64, DType::kI64, DType::kU8}) {
      const Tensor seven = full({2, 3}, 7, {.dtype = from});
      const Tensor y = cast(seven.transpose(0, 1), to);
      CHECK(y.dtype() == to);
      CHECK(y.shape() == Shape{3, 2});
      CHECK(cast(y, DType::kF64).to_vector<double>() == std::vector<double>(6, 7.0));
    }
  }
  CHECK(cast(Tensor::from_vector<std::int64_t>({16777217}, {1}), DType::kF32).item<float>() ==
        16777216.0f);
}

TEST_CASE("clone, contiguous, copy_: any layouts") {
  const Tensor x = spread_tensor<float>({5, 3, 7});
  const auto values = x.to_vector<float>();
  for (const Tensor& from : layouts(x)) {
    CHECK(clone(from).to_vector<float>() == values);
    CHECK(clone(from).is_contiguous());
    CHECK(contiguous(from).to_vector<float>() == values);
    CHECK((contiguous(from).storage() == from.storage()) == from.is_contiguous());
    for (const Tensor& to : layouts(zeros_like(x))) {
      const auto before = to.version();
      copy_(to, from);
      CHECK(to.to_vector<float>() == values);
      CHECK(to.version() == before + 1);
    }
  }
  CHECK(clone(Tensor::empty({0, 4})).shape() == Shape{0, 4});
}

TEST_CASE("axpby_: scale, accumulate with a cast; what beta 0 does not read") {
  const Tensor out = Tensor::from_vector<double>({1, 2}, {2});
  axpby_(out, Tensor::from_vector<float>({0.5f, 0.25f}, {2}), {.alpha = 4, .beta = 10});
  CHECK(out.to_vector<double>() == std::vector<double>{12, 21});
  const Tensor nan = full({2}, kNaN);
  axpby_(nan, Tensor::from_vector<float>({1, 2}, {2}), {.alpha = 0.5});
  CHECK(nan.to_vector<float>() == std::vector<float>{0.5f, 1});
  const Tensor i = Tensor::from_vector<std::int64_t>({10, 20}, {2});
  axpby_(i, i, {.alpha = 2, .beta = -1});
  CHECK(i.to_vector<std::int64_t>() == std::vector<std::int64_t>{10, 20});
  axpby_(i, Tensor::from_vector<float>({0.5f, 0.6f}, {2}), {.alpha = 3, .beta = 1});
  CHECK(i.to_vector<std::int64_t>() == std::vector<std::int64_t>{11, 21});
}

TEST_CASE("zeros, ones, full, zeros_like, arange, fill") {
  CHECK(zeros({2, 2}).to_vector<float>() == std::vector<float>(4, 0));
  CHECK(ones({3}, {.dtype = DType::kI64}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>(3, 1));
  CHECK(full({}, 2.5, {.dtype = DType::kF64}).item<double>() == 2.5);
  CHECK(zeros_like(full({2}, 3)).to_vector<float>() == std::vector<float>(2, 0));
  CHECK(zeros({0, 3}).numel() == 0);
  CHECK(arange(4).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 2, 3});
  CHECK(arange(3, {.dtype = DType::kF32}).to_vector<float>() == std::vector<float>{0, 1, 2});
  CHECK(arange(0).numel() == 0);
  const Tensor frame = zeros({3, 3});
  fill(frame.slice(1, 1, 2), 4);
  CHECK(frame.to_vector<float>() == std::vector<float>{0, 4, 0, 0, 4, 0, 0, 4, 0});
  CHECK(thrown<InvalidArgument>([] { arange(-1); }) ==
        "[arange] the count is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([] { arange(257, {.dtype = DType::kU8}); }) ==
        "[arange] u8 holds 256 numbers, asked for 257; use i64");
  CHECK(thrown<InvalidArgument>([] { fill(Tensor(), 1); }) ==
        "[fill] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([] { zeros_like(Tensor()); }) ==
        "[zeros_like] the tensor is undefined; pass a tensor");
}

TEST_CASE("elementwise operations: errors") {
  const Tensor f = zeros({2}), d = zeros({2}, {.dtype = DType::kF64}),
               i = zeros({2}, {.dtype = DType::kI64});
  const Tensor n = zeros({2}, {.device = kNull});
  CHECK(thrown<InvalidArgument>([&] { add(f, d); }) ==
        "[add] operands have dtypes f32 and f64; cast one of them");
  CHECK(thrown<InvalidArgument>([&] { mul(f, n); }) ==
        "[mul] operands are on cpu and null; move them to one device");
  CHECK(thrown<InvalidArgument>([&] { sub(Tensor(), f); }) ==
        "[sub] the first operand is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { sub(f, Tensor()); }) ==
        "[sub] the second operand is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { div(i, i); }) ==
        "[div] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] { gelu(i); }) ==
        "[gelu] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] { relu(Tensor()); }) ==
        "[relu] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { relu_backward(f, zeros({3})); }) ==
        "[relu_backward] shapes [2] and [3] differ; they must be equal");
  CHECK(thrown<InvalidArgument>([&] { copy_(f, zeros({3})); }) ==
        "[copy_] shapes [2] and [3] differ; they must be equal");
  CHECK(thrown<InvalidArgument>([&] { axpby_(f, n, {}); }) ==
        "[axpby_] operands are on cpu and null; move them to one device");
  CHECK(thrown<InvalidArgument>([&] { copy_(Tensor(), f); }) ==
        "[copy_] the output is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { clone(Tensor()); }) ==
        "[clone] the tensor is undefined; pass a tensor");
  CHECK_THROWS_AS(add(zeros({2}), zeros({3})), InvalidArgument);
}

}  // namespace
}  // namespace tessera
