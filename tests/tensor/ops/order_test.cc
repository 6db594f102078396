// Extremes with their positions, sorting and top-k against the standard library.
#include "tessera/tensor/ops/order.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;
using naive::Index;

TEST_CASE("argmax: the first of equals, NaN above all, any layout") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from_vector<float>({1, 3, 3, -1, -1, -2, 5, nan, 9}, {3, 3});
  for (const Tensor& layout : layouts(x))
    CHECK(argmax(layout).to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0, 1});
  CHECK(argmax(x.select(0, 0)).item<std::int64_t>() == 1);
  CHECK(argmax(zeros({0, 3})).numel() == 0);
  CHECK(argmax(Tensor::from_vector<std::int64_t>({4, 9, 2}, {3})).item<std::int64_t>() == 1);
  CHECK(thrown<InvalidArgument>([] {
          argmax(zeros({2, 0}));
        }) == "[argmax] dim 1 of [2, 0] is empty; there is no largest element");
}

// True if `a` comes before `b`; NaN is the largest.
bool before(double a, double b) {
  if (std::isnan(a)) return false;
  return std::isnan(b) || a < b;
}

// Values and positions of every line along `dim`, sorted by std::stable_sort, the first k of them.
struct Sorted {
  Array values;
  Array indices;
};
Sorted slow_sort(const Array& x, int dim, bool descending, std::int64_t k) {
  const auto d = static_cast<std::size_t>(dim);
  Index lines = x.shape, shape = x.shape;
  lines[d] = 1;
  shape[d] = k;
  Sorted out{naive::filled(shape, 0), naive::filled(shape, 0)};
  naive::for_each_index(lines, [&](Index index) {
    std::vector<double> line;
    for (index[d] = 0; index[d] < x.shape[d]; ++index[d]) line.push_back(x.at(index));
    std::vector<std::size_t> order(line.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return descending ? before(line[b], line[a]) : before(line[a], line[b]);
    });
    for (index[d] = 0; index[d] < k; ++index[d]) {
      const std::size_t from = order[static_cast<std::size_t>(index[d])];
      out.values.at(index) = line[from];
      out.indices.at(index) = static_cast<double>(from);
    }
  });
  return out;
}

// Few different values, so that equal ones are common.
Tensor with_equals(const Shape& shape, DType dtype) {
  Tensor x = cast(cast(spread_tensor<double>(shape, -5, 6), DType::kI64), dtype);
  if (!is_floating(dtype) || shape.numel() < 4) return x;
  std::vector<double> values = cast(x, DType::kF64).to_vector<double>();
  values[1] = std::numeric_limits<double>::quiet_NaN();
  values[2] = -std::numeric_limits<double>::infinity();
  values[3] = -0.0;
  return cast(Tensor::from_vector(values, shape), dtype);
}

TEST_CASE("sort, argsort, topk and extremes: every dtype, layout and dim") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{4, 5, 3}, Shape{1}, Shape{600, 2}, Shape{2, 0, 3}}) {
      const Tensor x = with_equals(shape, dtype);
      const Array plain = naive::array_of(x);
      for (const Tensor& layout : layouts(x)) {
        for (int dim = 0; dim < shape.ndim(); ++dim) {
          INFO(dtype_name(dtype) << shape.str() << layout.strides().str() << " dim " << dim);
          const std::int64_t n = shape[dim];
          for (bool descending : {false, true}) {
            const Sorted expected = slow_sort(plain, dim, descending, n);
            const ValuesAndIndices y = sort(layout, dim, {.descending = descending});
            CHECK(y.values.dtype() == dtype);
            CHECK(naive::is_equal(y.values, expected.values));
            CHECK(naive::is_equal(y.indices, expected.indices));
            CHECK(naive::is_equal(argsort(layout, dim, {.descending = descending}),
                                  expected.indices));
            for (std::int64_t k : {std::int64_t{0}, std::min<std::int64_t>(2, n), n}) {
              const Sorted best = slow_sort(plain, dim, descending, k);
              const ValuesAndIndices top = topk(layout, k, dim, {.largest = descending});
              CHECK(naive::is_equal(top.values, best.values));
              CHECK(naive::is_equal(top.indices, best.indices));
            }
          }
          if (n == 0) continue;
          const Sorted high = slow_sort(plain, dim, true, 1);
          CHECK(naive::is_equal(max(layout, dim, true).values, high.values));
          CHECK(naive::is_equal(max(layout, dim, true).indices, high.indices));
          CHECK(naive::is_equal(argmax(layout, dim, true), high.indices));
          CHECK(max(layout, dim - shape.ndim()).values.shape() == shape.without(dim));
        }
      }
    }
  }
}

// Lines of which few elements are kept at a time, also in an order in which each is better than all
// before it; and more lines beside each other than are compared together.
TEST_CASE("topk of long lines, extremes of many lines") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF64, DType::kI32);
  CAPTURE(dtype);
  const Tensor mixed = with_equals({3, 1500}, dtype);
  const Tensor rising = cast(arange(1500), dtype).view({1, 1500});
  for (const Tensor& x : {mixed, rising, flip(rising, {1}), mixed.transpose(0, 1)}) {
    const int dim = x.dim(0) > x.dim(1) ? 0 : 1;
    for (const bool largest : {false, true}) {
      for (const std::int64_t k : {1, 7, 16, 17, 100, 800, 1499}) {
        const Sorted best = slow_sort(naive::array_of(x), dim, largest, k);
        const ValuesAndIndices top = topk(x, k, dim, {.largest = largest});
        CHECK(naive::is_equal(top.indices, best.indices));
      }
    }
  }
  const Tensor wide = with_equals({9, 150}, dtype);
  CHECK(
      naive::is_equal(argmax(wide, 0, true), slow_sort(naive::array_of(wide), 0, true, 1).indices));
  const Tensor negated = is_floating(dtype) ? where(isnan(wide), 0, neg(wide)) : neg(wide);
  CHECK(naive::is_equal(argmin(negated, 0, true),
                        slow_sort(naive::array_of(negated), 0, false, 1).indices));
}

TEST_CASE("min and argmin: NaN wins, the first of equals") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from_vector<float>({1, 3, 1, 5, nan, nan, 2, 0, -1}, {3, 3});
  for (const Tensor& layout : layouts(x)) {
    CHECK(argmin(layout).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 2});
    CHECK(min(layout, 1).indices.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 2});
    CHECK(min(layout, 0).values.to_vector<float>()[2] != 1);
  }
  CHECK(argmin(x, 0, true).shape() == Shape{1, 3});
  CHECK(std::isnan(min(x).item<float>()));
  CHECK(min(x.select(0, 2)).item<float>() == -1);
  CHECK(max(x.select(0, 2)).item<float>() == 2);
}

// The position of the first of the largest or smallest, and of the first NaN before all numbers.
std::int64_t slow_extreme(const std::vector<double>& line, bool largest) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (std::isnan(line[i])) return static_cast<std::int64_t>(i);
    if (largest ? line[i] > line[best] : line[i] < line[best]) best = i;
  }
  return static_cast<std::int64_t>(best);
}

// Lines of n elements with few different values; one of them, or two, replaced at places all along
// the line; and lines of equal elements.
std::vector<std::vector<double>> lines_of(std::int64_t n, bool floating) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<std::size_t>(n);
  std::vector<std::vector<double>> lines = {std::vector<double>(count, 3.0)};
  std::vector<double> mixed = spread(n, 1, 6);
  for (double& x : mixed) x = std::floor(x);
  lines.push_back(mixed);
  std::vector<double> special = {0, 9};
  if (floating) {
    special = {0, 9, -0.0, inf, -inf, nan};
    lines.emplace_back(count, -inf);
    lines.emplace_back(count, inf);
    lines.emplace_back(count, nan);
  }
  for (std::size_t i = 0; i < count; i += count < 100 ? 3 : count / 7) {
    for (const double value : special) {
      lines.push_back(mixed);
      lines.back()[i] = value;
      lines.push_back(lines.back());
      lines.back()[count - 1 - i / 2] = value == 0 ? -value : value;
    }
  }
  return lines;
}

TEST_CASE("argmax and argmin: lines of every length against a plain loop") {
  for (DType dtype : kAllDTypes) {
    if (dtype == DType::kBool) continue;
    for (const std::int64_t n : {1,  2,  7,   15,   16,   17,   31,   32,   33,   63,
                                 64, 65, 100, 1023, 1024, 1025, 1031, 1055, 1056, 2100}) {
      const auto lines = lines_of(n, is_floating(dtype));
      std::vector<double> all;
      std::vector<std::int64_t> high, low;
      for (const std::vector<double>& line : lines) {
        all.insert(all.end(), line.begin(), line.end());
        high.push_back(slow_extreme(line, true));
        low.push_back(slow_extreme(line, false));
      }
      const auto count = static_cast<std::int64_t>(lines.size());
      const Tensor x = cast(Tensor::from_vector(all, {count, n}), dtype);
      for (const Tensor& layout : layouts(x)) {
        INFO(dtype_name(dtype) << " " << n << layout.strides().str());
        CHECK(argmax(layout).to_vector<std::int64_t>() == high);
        CHECK(argmin(layout).to_vector<std::int64_t>() == low);
      }
    }
  }
}

TEST_CASE("topk: few of lines of every length") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF64, DType::kI64);
  CAPTURE(dtype);
  for (const std::int64_t n : {1, 2, 8, 9, 15, 16, 17, 33, 47, 530}) {
    const Tensor equals = with_equals({3, n}, dtype);
    const Tensor many = cast(spread_tensor<double>({3, n}, -9999, 9999), dtype);
    const Tensor last = is_floating(dtype) ? full({1, n}, std::nan(""), {.dtype = dtype})
                                           : full({1, n}, -1, {.dtype = dtype});
    for (const Tensor& x : {equals, many, last}) {
      const Array plain = naive::array_of(x);
      for (std::int64_t k = 1; k <= std::min<std::int64_t>(n, 10); ++k) {
        for (const bool largest : {false, true}) {
          CAPTURE(n, k, largest);
          const ValuesAndIndices top = topk(x, k, 1, {.largest = largest});
          const Sorted best = slow_sort(plain, 1, largest, k);
          CHECK(naive::is_equal(top.indices, best.indices));
          CHECK(naive::is_equal(top.values, best.values));
        }
      }
    }
  }
}

TEST_CASE("order: equal results for any number of threads") {
  const Tensor x = cast(spread_tensor<double>({70, 1500}, -50, 50), DType::kF16);
  for (int dim : {0, 1}) {
    CHECK(same_for_any_threads([&] { return argsort(x, dim).to_vector<std::int64_t>(); }));
    CHECK(same_for_any_threads([&] { return argmax(x, dim).to_vector<std::int64_t>(); }));
    CHECK(same_for_any_threads([&] { return topk(x, 7, dim).indices.to_vector<std::int64_t>(); }));
  }
}

TEST_CASE("i64 values that f64 cannot tell apart are sorted") {
  const std::int64_t big = std::int64_t{1} << 60;
  const Tensor x = Tensor::from_vector<std::int64_t>({big + 2, big, -big, big + 1}, {4});
  CHECK(sort(x).values.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{-big, big, big + 1, big + 2});
  CHECK(argmax(x).item<std::int64_t>() == 0);
}

TEST_CASE("order: errors") {
  const Tensor x = zeros({2, 3});
  CHECK(thrown<InvalidArgument>([&] { topk(x, 4); }) ==
        "[topk] k is 4, and dim 1 of [2, 3] has 3 elements; give 0 <= k <= 3");
  CHECK_THAT(thrown<InvalidArgument>([&] { topk(x, -1, 0); }), Catch::Contains("[topk] k is -1"));
  CHECK(thrown<InvalidArgument>([&] {
          max(zeros({2, 0}), 1);
        }) == "[max] dim 1 of [2, 0] is empty; there is no largest element");
  CHECK(thrown<InvalidArgument>([&] {
          argmin(zeros({0, 2}), 0);
        }) == "[argmin] dim 0 of [0, 2] is empty; there is no smallest element");
  CHECK_THROWS_AS(sort(x, 2), InvalidArgument);
  CHECK(thrown<InvalidArgument>([&] { sort(Tensor::scalar(1), 1); }) ==
        "[sort] dim 1 does not exist in a tensor of 1 dims; give one from -1 to 0");
  CHECK(thrown<InvalidArgument>([&] { topk(Tensor::scalar(1), 0); }) ==
        "[topk] k is 0, and a 0-d tensor has 1 element; give 1");
  CHECK(thrown<InvalidArgument>([&] {
          argmax(zeros({2, 0}), std::nullopt);
        }) == "[argmax] shape [2, 0] has no elements; there is nothing to choose");
  CHECK(thrown<InvalidArgument>([&] { kthvalue(x, 4); }) ==
        "[kthvalue] k is 4, and dim 1 of [2, 3] has 3 elements; k counts from 1");
  CHECK(thrown<InvalidArgument>([&] { kthvalue(x, 0, 0); }) ==
        "[kthvalue] k is 0, and dim 0 of [2, 3] has 2 elements; k counts from 1");
  CHECK(thrown<InvalidArgument>([&] {
          median(zeros({2, 0}), 1);
        }) == "[median] dim 1 of [2, 0] is empty; there is no middle element");
  CHECK(thrown<InvalidArgument>([&] { nanmedian(zeros({0})); }) ==
        "[nanmedian] shape [0] has no elements; there is nothing to choose");
  CHECK(thrown<InvalidArgument>([&] {
          mode(zeros({2, 0}));
        }) == "[mode] dim 1 of [2, 0] is empty; there is no most frequent element");
  CHECK(thrown<InvalidArgument>([&] { argsort(Tensor()); }) ==
        "[argsort] the tensor is undefined; pass a tensor");
}

}  // namespace
}  // namespace tessera
