#include "tessera/tensor/ops/reduce.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

// Sums in f64, element by element, over the dims of `mask`.
template <class T>
std::vector<double> slow_sum(const std::vector<T>& x, const Shape& shape,
                             const std::vector<bool>& mask) {
  std::int64_t outputs = 1;
  for (int d = 0; d < shape.ndim(); ++d)
    outputs *= mask[static_cast<std::size_t>(d)] ? 1 : shape[d];
  std::vector<double> y(static_cast<std::size_t>(outputs));
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), o = 0, step = 1;
    for (int d = shape.ndim() - 1; d >= 0; --d) {
      if (!mask[static_cast<std::size_t>(d)]) {
        o += rest % shape[d] * step;
        step *= shape[d];
      }
      rest /= shape[d];
    }
    y[static_cast<std::size_t>(o)] += static_cast<double>(x[i]);
  }
  return y;
}

template <class T>
void check_sums(const Shape& shape, double tolerance) {
  const Tensor x = spread_tensor<T>(shape);
  const auto values = x.template to_vector<T>();
  const auto near = [&](const Tensor& y, const std::vector<bool>& mask) {
    const auto exact = slow_sum(values, shape, mask);
    const auto got = y.template to_vector<T>();
    REQUIRE(got.size() == exact.size());
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - exact[i]));
    CHECK(worst <= tolerance);
  };
  std::vector<Tensor> first;
  for (const Tensor& layout : layouts(x)) {
    INFO(shape.str() << " strides " << layout.strides().str());
    const std::vector<Tensor> sums = {
        sum(layout),         sum(layout, {0}),    sum(layout, {1}),     sum(layout, {2}),
        sum(layout, {0, 1}), sum(layout, {0, 2}), sum(layout, {-1, -2})};
    near(sums[0], {true, true, true});
    near(sums[1], {true, false, false});
    near(sums[2], {false, true, false});
    near(sums[3], {false, false, true});
    near(sums[4], {true, true, false});
    near(sums[5], {true, false, true});
    near(sums[6], {false, true, true});
    if (first.empty()) first = sums;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      CHECK(same_bits(sums[i].template to_vector<T>(), first[i].template to_vector<T>()));
    }
  }
}

TEST_CASE("sum: every choice of dims, odd sizes, any layout, and the same bits for every layout") {
  for (const Shape& shape : {Shape{3, 5, 7}, Shape{1, 1, 1}, Shape{2, 1, 33}, Shape{17, 65, 2},
                             Shape{3, 1, 2500}, Shape{1500, 3, 2}, Shape{5, 0, 3}}) {
    check_sums<float>(shape, 1e-3);
    check_sums<double>(shape, 1e-11);
  }
}

TEST_CASE("sum: shapes, integers, no elements") {
  const Tensor x = spread_tensor<float>({2, 3, 4});
  CHECK(sum(x).shape() == Shape{});
  CHECK(sum(x, {1}).shape() == Shape{2, 4});
  CHECK(sum(x, {1}, true).shape() == Shape{2, 1, 4});
  CHECK(sum(x, {}, true).shape() == Shape{1, 1, 1});
  CHECK(sum(Tensor::scalar(3)).item<float>() == 3);
  CHECK(sum(zeros({0})).item<float>() == 0);
  CHECK(sum(zeros({3, 0}), {1}).to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(sum(zeros({3, 0}), {0}).numel() == 0);
  const std::int64_t big = std::int64_t{1} << 60;
  CHECK(sum(Tensor::from_vector<std::int64_t>({big, 1, 1}, {3})).item<std::int64_t>() == big + 2);
  const Tensor bytes = full({1000}, 255, {.dtype = DType::kU8});
  CHECK(sum(bytes).dtype() == DType::kI64);
  CHECK(sum(bytes).item<std::int64_t>() == 255'000);
}

TEST_CASE("sum: equal bits for any number of threads") {
  const Tensor x = spread_tensor<float>({211, 1031});
  CHECK(same_for_any_threads([&] { return sum(x).to_vector<float>(); }));
  CHECK(same_for_any_threads([&] { return sum(x, {0}).to_vector<float>(); }));
  CHECK(same_for_any_threads([&] { return sum(x, {1}).to_vector<float>(); }));
  CHECK(same_for_any_threads([&] { return sum_of_squares(x).to_vector<double>(); }));
}

// Element i goes to lane i of 16, lanes are added pairwise: halves, quarters, ...
TEST_CASE("sums of up to 17 elements: the bits of the documented order, any layout") {
  for (std::int64_t n = 1; n <= 17; ++n) {
    for (const bool inner : {false, true}) {
      const Shape shape = inner ? Shape{300, n} : Shape{n, 300};
      std::vector<float> values = spread<float>(shape.numel());
      const std::int64_t step = inner ? 1 : 300, apart = inner ? n : 1;
      for (std::int64_t i = 0; i < n; ++i) values[static_cast<std::size_t>(i * step)] = -0.0f;
      const Tensor x = Tensor::from_vector(values, shape);
      std::vector<float> expected;
      for (std::int64_t o = 0; o < 300; ++o) {
        float lanes[16] = {};
        for (std::int64_t i = 0; i < n; ++i)
          lanes[i % 16] += values[static_cast<std::size_t>(o * apart + i * step)];
        for (int half = 8; half > 0; half /= 2)
          for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
        expected.push_back(lanes[0]);
      }
      for (const Tensor& layout : layouts(x)) {
        INFO(n << " elements, strides " << layout.strides().str());
        const Tensor y = sum(layout, {inner ? 1 : 0});
        CHECK(y.to_vector<float>() == expected);
        CHECK(!std::signbit(y.to_vector<float>()[0]));
      }
      CHECK(same_for_any_threads([&] { return sum(x, {inner ? 1 : 0}).to_vector<float>(); }));
    }
  }
}

// Terms in f64, folded in the order of kernels/reduce.h.
double documented_fold(std::vector<double> terms, bool product) {
  const double none = product ? 1 : 0;
  const auto fold = [product](double a, double b) { return product ? a * b : a + b; };
  std::vector<double> blocks;
  for (std::size_t begin = 0; begin < terms.size(); begin += 1024) {
    std::vector<double> lanes(16, none);
    for (std::size_t i = begin; i < std::min(terms.size(), begin + 1024); ++i)
      lanes[(i - begin) % 16] = fold(lanes[(i - begin) % 16], terms[i]);
    for (std::size_t width = 8; width > 0; width /= 2)
      for (std::size_t l = 0; l < width; ++l) lanes[l] = fold(lanes[l], lanes[l + width]);
    blocks.push_back(lanes[0]);
  }
  REQUIRE(blocks.size() <= 64);
  double total = none;
  for (const double block : blocks) total = fold(total, block);
  return total;
}

TEST_CASE("products, squares and norms: the bits of the documented order, any layout") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (const std::int64_t n : {1, 3, 4, 15, 16, 17, 31, 33, 1000, 1023, 1024, 1025, 5000}) {
      for (const double special : {1.0, 0.0, -0.0, inf, nan, 1e30}) {
        std::vector<double> values = spread(n, 0.6, 1.5);
        values[static_cast<std::size_t>(n / 3)] = special;
        const Tensor x = cast(Tensor::from_vector(values, {1, n}), dtype);
        const std::vector<double> factors = cast(x, DType::kF64).to_vector<double>();
        std::vector<double> squares = factors;
        for (double& square : squares) square *= square;
        const double sum = documented_fold(squares, false);
        const auto rounded = [&](double y) {
          return cast(Tensor::from_vector<double>({y}, {1}), dtype);
        };
        for (const Tensor& layout : layouts(x)) {
          INFO(dtype_name(dtype) << " " << n << " " << special << layout.strides().str());
          const auto is = [](const Tensor& a, const Tensor& b) {
            return isnan(a).item<bool>() ? isnan(b).item<bool>() : bits_of(a) == bits_of(b);
          };
          CHECK(is(prod(layout, {1}), rounded(documented_fold(factors, true))));
          CHECK(is(norm(layout, {1}), rounded(std::sqrt(sum))));
          CHECK(is(sum_of_squares(layout).view({1}), Tensor::from_vector<double>({sum}, {1})));
        }
      }
    }
  }
}

TEST_CASE("sum of many f32 numbers keeps its digits") {
  const std::int64_t n = 3'000'000;
  CHECK(sum(full({n}, 0.1)).item<float>() == Approx(0.1 * static_cast<double>(n)).epsilon(1e-6));
}

TEST_CASE("mean and sum of squares") {
  const Tensor x = Tensor::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(mean(x).item<float>() == 3.5f);
  CHECK(mean(x, {0}).to_vector<float>() == std::vector<float>{2.5f, 3.5f, 4.5f});
  CHECK(mean(x, {1}, true).shape() == Shape{2, 1});
  CHECK(std::isnan(mean(zeros({0})).item<float>()));
  CHECK(sum_of_squares(x).dtype() == DType::kF64);
  CHECK(sum_of_squares(x.transpose(0, 1)).item<double>() == 91);
  CHECK(sum_of_squares(zeros({0})).item<double>() == 0);
  // Squares that exceed f32.
  CHECK(sum_of_squares(full({2}, 1e30)).item<double>() == Approx(2e60));
}

TEST_CASE("sum_of_squares of a list has the bits of one after another") {
  std::vector<Tensor> tensors;
  double one_after_another = 0;
  for (const std::int64_t n : {1, 5, 1024, 1025, 0, 70000, 300000}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      tensors.push_back(
          cast(sin(arange(0, static_cast<double>(n), 1, {.dtype = DType::kF64})), dtype));
      one_after_another += sum_of_squares(tensors.back()).item<double>();
    }
  }
  CHECK(sum_of_squares(tensors).item<double>() == one_after_another);
  CHECK(same_for_any_threads([&] { return sum_of_squares(tensors).to_vector<double>(); }));
  const Tensor x = full({4, 3}, 2);
  CHECK(sum_of_squares(std::vector{x, x.transpose(0, 1)}).item<double>() == 96);
  CHECK(sum_of_squares(std::vector{x}).dtype() == DType::kF64);
  CHECK(thrown<InvalidArgument>([] { sum_of_squares(std::vector<Tensor>()); }) ==
        "[sum_of_squares] the list has no tensors; pass at least one");
  CHECK(thrown<InvalidArgument>([&] {
          sum_of_squares(std::vector{x, arange(3)});
        }) == "[sum_of_squares] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] {
          sum_of_squares(std::vector{x, Tensor()});
        }) == "[sum_of_squares] a tensor of the list is undefined; pass a tensor");
}

TEST_CASE("sum_rows_ adds the rows of 16-bit matrices to numbers in f32, in order") {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const std::int64_t rows : {0, 1, 3, 4, 7, 300}) {
      for (const std::int64_t columns : {0, 1, 5, 255, 256, 257, 1031}) {
        INFO(dtype_name(dtype) << " " << rows << " x " << columns);
        const Tensor wide =
            sin(arange(0, static_cast<double>(rows * columns), 1, {.dtype = DType::kF32}));
        const Tensor x = cast(wide, dtype).view({rows, columns});
        const std::vector<float> all = cast(x, DType::kF32).to_vector<float>();
        for (const double beta : {0.0, 1.0, 0.5}) {
          // Not read if beta is 0.
          const Tensor out =
              full({columns}, beta == 0 ? std::nan("") : 3.25, {.dtype = DType::kF32});
          sum_rows_(out, x, beta);
          std::vector<float> expected(static_cast<std::size_t>(columns),
                                      beta == 0 ? 0.0F : static_cast<float>(3.25 * beta));
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < columns; ++c)
              expected[static_cast<std::size_t>(c)] +=
                  all[static_cast<std::size_t>(r * columns + c)];
          const std::vector<float> got = out.to_vector<float>();
          if (default_device().is_cpu()) CHECK(got == expected);
          for (std::size_t c = 0; c < got.size(); ++c)
            CHECK(got[c] == Approx(expected[c]).epsilon(1e-5).margin(1e-4));
        }
      }
    }
  }
  const Tensor x = cast(sin(arange(0, 21, 1, {.dtype = DType::kF32})), DType::kBF16).view({7, 3});
  const Tensor out = zeros({7}, {.dtype = DType::kF32}), same = zeros({7}, {.dtype = DType::kF32});
  sum_rows_(out, x.transpose(0, 1));
  sum_rows_(same, contiguous(x.transpose(0, 1)));
  CHECK(out.to_vector<float>() == same.to_vector<float>());
  CHECK(same_for_any_threads([&] {
    const Tensor y = zeros({2000}, {.dtype = DType::kF32});
    sum_rows_(y, full({90, 2000}, 0.1, {.dtype = DType::kBF16}));
    return y.to_vector<float>();
  }));
}

TEST_CASE("sum_rows_: errors") {
  const Tensor x = zeros({2, 3}, {.dtype = DType::kBF16});
  CHECK(thrown<InvalidArgument>([&] { sum_rows_(zeros({2}), x); }) ==
        "[sum_rows_] the result is f32 of shape [2]; a matrix of shape [2, 3] needs f32 of shape "
        "[3], contiguous");
  CHECK_THROWS_AS(sum_rows_(zeros({3}, {.dtype = DType::kBF16}), x), InvalidArgument);
  CHECK_THROWS_AS(sum_rows_(zeros({6}).slice(0, 0, 6, 2), x), InvalidArgument);
  CHECK(thrown<InvalidArgument>([&] {
          sum_rows_(zeros({3}), zeros({2, 3}));
        }) ==
        "[sum_rows_] the matrix is f32 of shape [2, 3]; it must have two dims, and be bf16 or f16");
  CHECK_THROWS_AS(sum_rows_(zeros({3}), zeros({3}, {.dtype = DType::kBF16})), InvalidArgument);
  CHECK_THROWS_AS(sum_rows_(Tensor(), x), InvalidArgument);
}

TEST_CASE("sum_to_shape undoes a broadcast") {
  const Tensor x = ones({4, 2, 3});
  CHECK(sum_to_shape(x, {2, 3}).to_vector<float>() == std::vector<float>(6, 4));
  CHECK(sum_to_shape(x, {2, 1}).to_vector<float>() == std::vector<float>(2, 12));
  CHECK(sum_to_shape(x, {4, 1, 3}).shape() == Shape{4, 1, 3});
  CHECK(sum_to_shape(x, {}).item<float>() == 24);
  CHECK(sum_to_shape(x, {4, 2, 3}).storage() == x.storage());
  CHECK(sum_to_shape(ones({0, 3}), {1, 3}).to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(thrown<InvalidArgument>([&] {
          sum_to_shape(x, {2, 2});
        }) ==
        "[sum_to_shape] [2, 2] does not broadcast to [4, 2, 3]; only broadcast dims can be summed "
        "away");
  CHECK(thrown<InvalidArgument>([&] {
          sum_to_shape(ones({3}), {1, 3});
        }) ==
        "[sum_to_shape] [1, 3] does not broadcast to [3]; only broadcast dims can be summed away");
}

TEST_CASE("reductions: errors") {
  const Tensor x = zeros({2, 3});
  CHECK(thrown<InvalidArgument>([&] {
          sum(x, {0, -2});
        }) == "[sum] dim -2 is listed twice; name each dim once");
  CHECK_THROWS_AS(sum(x, {2}), InvalidArgument);
  CHECK(thrown<InvalidArgument>([&] { mean(arange(3)); }) ==
        "[mean] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] { sum_of_squares(arange(3)); }) ==
        "[sum_of_squares] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([&] { sum(Tensor()); }) ==
        "[sum] the tensor is undefined; pass a tensor");
}

}  // namespace
}  // namespace tessera
