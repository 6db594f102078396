#include <catch2/catch.hpp>
#include <cmath>
#include <concepts>
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

using BinaryFunction = Tensor (*)(const TensorOrNumber&, const TensorOrNumber&);

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
void check_binary(BinaryFunction op, R (*exact)(T, T), double most_ulps = 0) {
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
        if constexpr (std::floating_point<R>) {
          if (most_ulps > 0) {
            CHECK(within_ulps(y.to_vector<R>(), expected, most_ulps));
            continue;
          }
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
  check_binary<T, T>(maximum, [](T a, T b) { return std::max(a, b); });
  check_binary<T, T>(minimum, [](T a, T b) { return std::min(a, b); });
  check_binary<T, bool>(eq, [](T a, T b) { return a == b; });
  check_binary<T, bool>(ne, [](T a, T b) { return a != b; });
  check_binary<T, bool>(lt, [](T a, T b) { return a < b; });
  check_binary<T, bool>(le, [](T a, T b) { return a <= b; });
  check_binary<T, bool>(gt, [](T a, T b) { return a > b; });
  check_binary<T, bool>(ge, [](T a, T b) { return a >= b; });
}

TEST_CASE("binary operations: values under broadcasting, in every dtype and layout") {
  check_arithmetic<float>();
  check_arithmetic<double>();
  check_arithmetic<std::int64_t>();
  check_arithmetic<std::uint8_t>();
  check_arithmetic<std::int32_t>();
  check_binary<float, float>(div, [](float a, float b) { return a / b; });
  check_binary<double, double>(div, [](double a, double b) { return a / b; });
}

TEST_CASE("pow, floor_divide, remainder: values") {
  check_binary<double, double>(
      pow, [](double a, double b) { return std::pow(a, b); }, default_device().is_cuda() ? 1 : 0);
  check_binary<float, float>(pow, [](float a, float b) {
    return static_cast<float>(std::pow(static_cast<double>(a), static_cast<double>(b)));
  });
  const std::vector<std::int64_t> a = {7, -7, 7, -7, 6, -6, 5, 0}, b = {3, 3, -3, -3, 3, 3, 0, 4};
  const Tensor ta = Tensor::from_vector(a, {8}), tb = Tensor::from_vector(b, {8});
  CHECK(floor_divide(ta, tb).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{2, -3, -3, 2, 2, -2, 0, 0});
  CHECK(remainder(ta, tb).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{1, 2, -2, -1, 0, 0, 5, 0});
  const Tensor fa = cast(ta, DType::kF32), fb = cast(tb, DType::kF32);
  CHECK(remainder(fa.slice(0, 0, 6), fb.slice(0, 0, 6)).to_vector<float>() ==
        std::vector<float>{1, 2, -2, -1, 0, 0});
  CHECK(floor_divide(fa.slice(0, 0, 6), fb.slice(0, 0, 6)).to_vector<float>() ==
        std::vector<float>{2, -3, -3, 2, 2, -2});
  // 1 / 0.1 rounds to 10, but 10 times the f32 nearest to 0.1 is more than 1.
  const Tensor ones_ = Tensor::from_vector<float>({1, -1, 1, -1, 0, -6}, {6}),
               tenths = Tensor::from_vector<float>(
                   {0.1F, 0.1F, -0.1F, static_cast<float>(kInf), -2, 0}, {6});
  CHECK(floor_divide(ones_, tenths).to_vector<float>() ==
        std::vector<float>{9, -10, -10, -1, 0, static_cast<float>(-kInf)});
  CHECK(std::signbit(floor_divide(ones_, tenths).to_vector<float>()[4]));
  CHECK(floor_divide(cast(ones_, DType::kF64), 0.1).to_vector<double>()[0] == 9);
  const Tensor flags = cast(Tensor::from_vector<float>({1, 0}, {2}), DType::kBool);
  CHECK(pow(flags, 2).dtype() == DType::kI64);
  CHECK(pow(flags, 2).to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0});
  const Tensor base = Tensor::from_vector<std::int64_t>({3, -2, 1, -1, 0}, {5});
  CHECK(pow(base, 3).to_vector<std::int64_t>() == std::vector<std::int64_t>{27, -8, 1, -1, 0});
  CHECK(pow(base, full({}, -3, {.dtype = DType::kI64})).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 0, 1, -1, 0});
  CHECK(pow(base, 2).dtype() == DType::kI64);
  CHECK(pow(base, 2.0).dtype() == DType::kF32);
  CHECK(pow(base, 2.0).to_vector<float>() == std::vector<float>{9, 4, 1, 1, 0});
  CHECK(pow(2, cast(base, DType::kF64)).to_vector<double>() ==
        std::vector<double>{8, 0.25, 2, 0.5, 1});
  CHECK(thrown<InvalidArgument>([&] { pow(base, -1); }) ==
        "[pow] an integer to the power -1 is no integer; cast it to a floating dtype first");
}

TEST_CASE("maximum, minimum, clamp: NaN and bounds") {
  const Tensor x = Tensor::from_vector<double>({kNaN, 1, -5, 9}, {4});
  CHECK(std::isnan(maximum(x, 2).to_vector<double>()[0]));
  CHECK(std::isnan(maximum(2, x).to_vector<double>()[0]));
  CHECK(std::isnan(minimum(x, kInf).to_vector<double>()[0]));
  const auto y = clamp(x, -2, 3).to_vector<double>();
  CHECK(std::isnan(y[0]));
  CHECK(std::vector<double>(y.begin() + 1, y.end()) == std::vector<double>{1, -2, 3});
  CHECK(clamp(arange(5), 1, 3).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{1, 1, 2, 3, 3});
  CHECK(clamp(arange(2), 5, 3).to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 3});
  CHECK(clamp(arange(3), 0.5, full({3}, 1.5, {.dtype = DType::kF64})).to_vector<double>() ==
        std::vector<double>{0.5, 1, 1.5});
}

TEST_CASE("lerp, addcmul, addcdiv, where: values under broadcasting") {
  const Tensor a = Tensor::from_vector<double>({1, 2, 3}, {3}),
               b = Tensor::from_vector<double>({10, 20}, {2, 1});
  CHECK(lerp(a, b, 0.25).to_vector<double>() ==
        std::vector<double>{3.25, 4, 4.75, 5.75, 6.5, 7.25});
  CHECK(lerp(a, b, 1).to_vector<double>() == std::vector<double>{10, 10, 10, 20, 20, 20});
  CHECK(lerp(a, 0.1, 0).to_vector<double>() == a.to_vector<double>());
  CHECK(addcmul(a, a, b, 2).to_vector<double>() == std::vector<double>{21, 42, 63, 41, 82, 123});
  CHECK(addcmul(arange(3), arange(3), arange(3), -1).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 0, -2});
  CHECK(addcdiv(a, b, a, 0.5).to_vector<double>() ==
        std::vector<double>{6, 4.5, 3 + 5.0 / 3, 11, 7, 3 + 10.0 / 3});
  const Tensor condition = Tensor::from_vector<bool>({true, false, true}, {3});
  CHECK(where(condition, a, b).to_vector<double>() == std::vector<double>{1, 10, 3, 1, 20, 3});
  CHECK(where(condition, arange(3), 7).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 7, 2});
  CHECK(where(condition, 1.5, arange(3)).dtype() == DType::kF32);
  CHECK(where(a, 1, zeros({3})).to_vector<float>() == std::vector<float>{1, 1, 1});
  // A condition keeps its own dtype: 0.5 is not 0, whatever the compute type of a and b.
  for (double small : {0.5, 1e-300}) {
    const Tensor flags = Tensor::from_vector<double>({small, 0, kNaN}, {3});
    CHECK(where(flags, arange(3), 7).to_vector<std::int64_t>() ==
          std::vector<std::int64_t>{0, 7, 2});
    CHECK(where(flags, ones({3}), 0).to_vector<float>() == std::vector<float>{1, 0, 1});
  }
  CHECK(thrown<InvalidArgument>([&] { lerp(arange(3), arange(3), 1); }) ==
        "[lerp] needs a floating dtype, got i64; cast an operand first");
  CHECK(thrown<InvalidArgument>([&] { addcdiv(arange(3), arange(3), arange(3)); }) ==
        "[addcdiv] needs a floating dtype, got i64; cast an operand first");
  CHECK(thrown<InvalidArgument>([&] { addcmul(arange(3), arange(3), arange(3), 0.5); }) ==
        "[addcmul] the number 0.5 is not a whole number up to 2^53, which i64 is computed with; "
        "cast to a floating dtype first");
  CHECK(thrown<InvalidArgument>([&] { lerp_(arange(3), Tensor(), 1); }) ==
        "[lerp_] an operand is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { lerp_(arange(3), arange(3), 1); }) ==
        "[lerp_] needs a floating dtype, got i64; cast an operand first");
  CHECK(thrown<InvalidArgument>([&] { addcdiv_(arange(3), arange(3), arange(3)); }) ==
        "[addcdiv_] needs a floating dtype, got i64; cast an operand first");
}

TEST_CASE("logical operations take any dtype and answer bool") {
  const Tensor a = Tensor::from_vector<float>({0, 0, 2, static_cast<float>(kNaN)}, {4}),
               b = Tensor::from_vector<std::int64_t>({0, 3, 0, -1}, {4});
  CHECK(logical_and(a, b).to_vector<bool>() == std::vector<bool>{0, 0, 0, 1});
  CHECK(logical_or(a, b).to_vector<bool>() == std::vector<bool>{0, 1, 1, 1});
  CHECK(logical_xor(a, b).to_vector<bool>() == std::vector<bool>{0, 1, 1, 0});
  CHECK(logical_and(b, true).to_vector<bool>() == std::vector<bool>{0, 1, 0, 1});
}

TEST_CASE("binary operations in place: values, versions, overlapping operands") {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const Tensor y = cast(spread_tensor<float>({700}, 0.5, 3), dtype);
    for (const Tensor& x : layouts(cast(spread_tensor<float>({3, 700}, 0.5, 3), dtype))) {
      const auto check = [&](BinaryFunction op,
                             void (*in_place)(const Tensor&, const TensorOrNumber&)) {
        const Tensor expected = op(x, y);
        const auto version = x.version();
        in_place(x, y);
        CHECK(bits_of(x) == bits_of(expected));
        CHECK(x.version() == version + 1);
      };
      check(add, add_);
      check(sub, sub_);
      check(mul, mul_);
      check(div, div_);
      check(pow, pow_);
    }
  }
  const Tensor x = cast(arange(6), DType::kF64);
  add_(x.slice(0, 1, 6), x.slice(0, 0, 5));  // adds the old value of the previous element to each
  CHECK(x.to_vector<double>() == std::vector<double>{0, 1, 3, 5, 7, 9});
  mul_(x, x);
  CHECK(x.to_vector<double>() == std::vector<double>{0, 1, 9, 25, 49, 81});
  clamp_(x, 2, 50);
  CHECK(x.to_vector<double>() == std::vector<double>{2, 2, 9, 25, 49, 50});
  lerp_(x, 0, 0.5);
  CHECK(x.to_vector<double>() == std::vector<double>{1, 1, 4.5, 12.5, 24.5, 25});
  addcmul_(x, ones({6}), full({6}, 2), 3);
  CHECK(x.to_vector<double>() == std::vector<double>{7, 7, 10.5, 18.5, 30.5, 31});
  addcdiv_(x, ones({6}), full({6}, 2), 2);
  CHECK(x.to_vector<double>() == std::vector<double>{8, 8, 11.5, 19.5, 31.5, 32});
  const Tensor i = arange(3);
  add_(i, 4);
  CHECK(i.to_vector<std::int64_t>() == std::vector<std::int64_t>{4, 5, 6});
  CHECK(thrown<InvalidArgument>([&] { add_(i, 0.5); }) ==
        "[add_] the result is f32 and cannot be written into i64; cast the tensor first");
  CHECK(
      thrown<InvalidArgument>([&] {
        mul_(i, zeros({2, 3}, {.dtype = DType::kI64}));
      }) ==
      "[mul_] the result has shape [2, 3] and cannot be written into shape [3]; use the form that "
      "makes a new tensor");
}

TEST_CASE("16-bit operands: computed in f32, rounded once, with any other dtype") {
  const Tensor a = cast(spread_tensor<float>({700}, 0.5, 3), DType::kBF16),
               b = cast(spread_tensor<float>({700}, 0.5, 3), DType::kF16);
  CHECK(bits_of(mul(a, a)) ==
        bits_of(cast(mul(cast(a, DType::kF32), cast(a, DType::kF32)), DType::kBF16)));
  CHECK(mul(a, b).dtype() == DType::kF32);
  CHECK(bits_of(mul(a, b)) == bits_of(mul(cast(a, DType::kF32), cast(b, DType::kF32))));
  CHECK(add(a, 1e-3).dtype() == DType::kBF16);
  CHECK(add(a, arange(700)).dtype() == DType::kBF16);
}

TEST_CASE("numbers on either side") {
  const Tensor x = Tensor::from_vector<float>({1, 2, 4}, {3});
  CHECK((1 - x).to_vector<float>() == std::vector<float>{0, -1, -3});
  CHECK((8.0 / x).to_vector<float>() == std::vector<float>{8, 4, 2});
  CHECK((x / 2 + 1 - x * 0.5).to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(sub(10, arange(3)).to_vector<std::int64_t>() == std::vector<std::int64_t>{10, 9, 8});
  CHECK(thrown<InvalidArgument>([] { add(1, 2); }) ==
        "[add] needs at least one tensor, got numbers only");
  CHECK(thrown<InvalidArgument>([] { add(arange(2), std::int64_t{1} << 60); }) ==
        "[add] the number 1.152921504606847e+18 is not a whole number up to 2^53, which i64 is "
        "computed with; cast to a floating dtype first");
}

TEST_CASE("add and mul with a number") {
  const Tensor x = Tensor::from_vector<float>({1, 2, 3}, {3});
  CHECK(add(x, 0.5).to_vector<float>() == std::vector<float>{1.5f, 2.5f, 3.5f});
  CHECK(mul(x, -2).to_vector<float>() == std::vector<float>{-2, -4, -6});
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  const Tensor i = Tensor::from_vector<std::int64_t>({big}, {1});
  CHECK(add(i, 2).item<std::int64_t>() == big + 2);
  CHECK(mul(i, 3).item<std::int64_t>() == big * 3);
  CHECK(add(i, 0.5).dtype() == DType::kF32);
}

TEST_CASE("elementwise operations: errors") {
  const Tensor f = zeros({2}), d = zeros({2}, {.dtype = DType::kF64}),
               i = zeros({2}, {.dtype = DType::kI64});
  const Tensor n = zeros({2}, {.device = kNull});
  CHECK(thrown<InvalidArgument>([&] { relu_backward(f, d); }) ==
        "[relu_backward] operands have dtypes f32 and f64; cast one of them");
  CHECK(thrown<InvalidArgument>([&] { gelu_backward(i, i); }) ==
        "[gelu_backward] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] { sub(eq(f, f), true); }) ==
        "[sub] the difference of two bools is not a bool; use logical_xor, or cast one of them");
  CHECK(thrown<InvalidArgument>([&] { sub_(eq(f, f), eq(f, f)); }) ==
        "[sub_] the difference of two bools is not a bool; use logical_xor, or cast one of them");
  CHECK(thrown<InvalidArgument>([&] { mul(f, n); }) ==
        "[mul] operands are on " + default_device().str() + " and null; move them to one device");
  CHECK(thrown<InvalidArgument>([&] { sub(Tensor(), f); }) ==
        "[sub] the first operand is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { sub(f, Tensor()); }) ==
        "[sub] the second operand is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { relu(Tensor()); }) ==
        "[relu] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { relu_backward(f, zeros({3})); }) ==
        "[relu_backward] shapes [2] and [3] differ; they must be equal");
  CHECK(thrown<InvalidArgument>([&] { copy_(f, zeros({3})); }) ==
        "[copy_] shapes [2] and [3] differ; they must be equal");
  CHECK(thrown<InvalidArgument>([&] { axpby_(f, n, {}); }) ==
        "[axpby_] operands are on " + default_device().str() +
            " and null; move them to one device");
  CHECK(thrown<InvalidArgument>([&] { copy_(Tensor(), f); }) ==
        "[copy_] the output is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([&] { clone(Tensor()); }) ==
        "[clone] the tensor is undefined; pass a tensor");
  CHECK_THROWS_AS(add(zeros({2}), zeros({3})), InvalidArgument);
}

}  // namespace
}  // namespace tessera
