// Running products, extremes and log-sum-exp against plain loops, for every dtype, layout and dim.
// Running sums are in statistics_test.cc.
#include "tessera/tensor/ops/scan.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;
using naive::Index;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

using List = std::vector<double>;
using Fold = std::function<double(const List&)>;

// fold of elements 0 to i of each line, or of i to the last one from there to i.
Array running(const Array& x, int dim, bool reverse, const Fold& fold) {
  const auto d = static_cast<std::size_t>(dim);
  Array out = naive::filled(x.shape, 0);
  naive::for_each_index(x.shape, [&](const Index& index) {
    List list;
    Index at = index;
    const std::int64_t n = x.shape[d];
    for (at[d] = reverse ? n - 1 : 0; reverse ? at[d] >= index[d] : at[d] <= index[d];
         at[d] += reverse ? -1 : 1)
      list.push_back(x.at(at));
    out.at(index) = fold(list);
  });
  return out;
}

double product(const List& list) {
  double out = 1;
  for (double x : list) out *= x;
  return out;
}

double log_sum_exp(const List& list) {
  double most = -kInf, total = 0;
  for (double x : list) most = std::max(most, x);
  if (std::isinf(most)) return most;
  for (double x : list) total += std::exp(x - most);
  return most + std::log(total);
}

// The position of the last of the largest elements; the last NaN wins.
double last_largest(const List& list, double sign) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < list.size(); ++i) {
    if (std::isnan(list[i]) || (!std::isnan(list[best]) && sign * list[i] >= sign * list[best]))
      best = i;
  }
  return static_cast<double>(best);
}

const std::vector<Shape> kShapes = {{3, 5, 2}, {1}, {2, 600}, {70, 3}, {11, 300}, {3, 0, 2}};

TEST_CASE("cumprod: every dtype and layout, both directions") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : kShapes) {
      // Near 1, so that products stay in range; 0 and 1 for whole numbers.
      const Tensor x = is_floating(dtype)
                           ? cast(add(mul(spread_tensor<double>(shape), 0.05), 1), dtype)
                           : cast(spread_tensor<double>(shape, -1, 3), dtype);
      for (int dim = 0; dim < shape.ndim(); ++dim) {
        for (bool reverse : {false, true}) {
          INFO(dtype_name(dtype) << shape.str() << " dim " << dim << (reverse ? " reverse" : ""));
          const Array expected = running(naive::array_of(x), dim, reverse, product);
          // i64 wraps around where f64 does not.
          bool fits = true;
          for (double v : expected.values) fits = fits && std::abs(v) < 0x1p52;
          if (!is_floating(dtype) && !fits) continue;
          for (const Tensor& layout : layouts(x)) {
            const Tensor y = cumprod(layout, dim, {.reverse = reverse});
            CHECK(y.dtype() == (is_floating(dtype) ? dtype : DType::kI64));
            CHECK(naive::is_close(y, expected, default_tolerance(dtype).rtol, 1e-9));
          }
        }
      }
    }
  }
  // The later factors alone leave f64's range.
  const Tensor factors = Tensor::from_vector<double>({0, 1, 1, 1, 1e200, 1e200, 1, 1, 1}, {9});
  CHECK(cumprod(factors, 0).to_vector<double>() == List(9, 0));
  const auto products =
      cumprod(Tensor::from_vector<std::int64_t>({std::int64_t{1} << 62, 4, 3}, {3}), 0);
  CHECK(products.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{std::int64_t{1} << 62, 0, 0});
}

TEST_CASE("logcumsumexp: every floating dtype and layout, both directions") {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (const Shape& shape : kShapes) {
      const Tensor x = cast(spread_tensor<double>(shape, -30, 30), dtype);
      for (int dim = 0; dim < shape.ndim(); ++dim) {
        for (bool reverse : {false, true}) {
          const Array expected = running(naive::array_of(x), dim, reverse, log_sum_exp);
          for (const Tensor& layout : layouts(x)) {
            CHECK(naive::is_close(logcumsumexp(layout, dim, {.reverse = reverse}), expected,
                                  default_tolerance(dtype).rtol, 1e-6));
          }
        }
      }
    }
  }
  const auto of = [](const std::vector<double>& x) {
    return logcumsumexp(Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())}), 0)
        .to_vector<double>();
  };
  CHECK(of({-kInf, -kInf, 1, kInf, 2}) == std::vector<double>{-kInf, -kInf, 1, kInf, kInf});
  CHECK(of({1000, 1000})[1] == Approx(1000 + std::log(2)));
  CHECK(of({kInf, kInf}) == std::vector<double>{kInf, kInf});
  const auto with_nan = of({1, kNan, kInf});
  CHECK(with_nan[0] == 1);
  CHECK((std::isnan(with_nan[1]) && std::isnan(with_nan[2])));
}

TEST_CASE("cummax and cummin: every dtype and layout, equals and NaN") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : kShapes) {
      // Few different values, so that equal ones are common.
      Tensor x = cast(cast(spread_tensor<double>(shape, -4, 5), DType::kI64), dtype);
      if (is_floating(dtype) && shape.numel() > 20) {
        std::vector<double> values = cast(x, DType::kF64).to_vector<double>();
        values[9] = values[13] = kNan;
        x = cast(Tensor::from_vector(values, shape), dtype);
      }
      const Array plain = naive::array_of(x);
      for (int dim = 0; dim < shape.ndim(); ++dim) {
        for (double sign : {1.0, -1.0}) {
          INFO(dtype_name(dtype) << shape.str() << " dim " << dim << " sign " << sign);
          const Array at =
              running(plain, dim, false, [&](const List& l) { return last_largest(l, sign); });
          const Array values = running(plain, dim, false, [&](const List& l) {
            return l[static_cast<std::size_t>(last_largest(l, sign))];
          });
          for (const Tensor& layout : layouts(x)) {
            const ValuesAndIndices y = sign > 0 ? cummax(layout, dim) : cummin(layout, dim);
            CHECK(y.values.dtype() == dtype);
            CHECK(naive::is_equal(y.indices, at));
            CHECK(naive::is_equal(y.values, values));
          }
        }
      }
    }
  }
  // As PyTorch 2.15 prints them.
  const Tensor x = Tensor::from_vector<float>(
      {1, 3, 3, static_cast<float>(kNan), 2, static_cast<float>(kNan), 5}, {7});
  CHECK(cummax(x, 0).indices.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 1, 2, 3, 3, 5, 5});
}

TEST_CASE("running results: the dtype of the operand and the result") {
  const Tensor x = Tensor::from_vector<float>({1.5, 2, 2.9}, {3});
  const Tensor y = cumprod(x, 0, {.dtype = DType::kI32});
  CHECK(y.dtype() == DType::kI32);
  CHECK(y.to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 2, 4});
  CHECK(cumsum(x, 0, {.dtype = DType::kI32}).to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{1, 3, 5});
  // 16 bits are not rounded between.
  const Tensor half = full({4096}, 1, {.dtype = DType::kBF16});
  const Tensor sums = cumsum(half, 0, {.dtype = DType::kF32});
  CHECK(sums.dtype() == DType::kF32);
  CHECK(sums.select(0, 4095).item<float>() == 4096);
  CHECK(cumsum(arange(3), 0, {.dtype = DType::kF64}).to_vector<double>() ==
        std::vector<double>{0, 1, 3});
  // 2^31 - 1 + 1 wraps around.
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  CHECK(cumsum(Tensor::from_vector<std::int32_t>({most, 1}, {2}), 0, {.dtype = DType::kI32})
            .to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{most, std::numeric_limits<std::int32_t>::min()});
}

// Elements of which sums and products stay normal, become tiny, overflow, or are not numbers.
std::vector<List> difficult_lines(std::int64_t n) {
  std::vector<List> kinds = {spread(n, -3, 3), spread(n, -1e-39, 1e-39), spread(n, 1e37, 3e38),
                             spread(n, -0x1p-60, 0x1p-60), List(static_cast<std::size_t>(n), -0.0)};
  if (n > 0) {  // products that pass slowly through the subnormal numbers
    kinds.push_back(spread(n, 0.5, 1));
    kinds.back()[0] = 0x1p-124;
  }
  const std::vector<double> special = {kNan, kInf, -kInf, 0.0};
  for (std::size_t i = 0; i < special.size() && n > 0; ++i) {
    kinds.push_back(kinds[0]);
    kinds.back()[static_cast<std::size_t>(n) * i / 5] = special[i];
  }
  return kinds;
}

// Running results of one line in f64, in the order of the elements.
List running_line(const List& line, bool reverse, bool product) {
  List out(line.size());
  double state = product ? 1 : 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const std::size_t at = reverse ? line.size() - 1 - i : i;
    state = product ? state * line[at] : state + line[at];
    out[at] = state;
  }
  return out;
}

// Lines of adjacent elements are computed four together, others one by one. A GPU
// may combine segments, which rounds in another order.
TEST_CASE("cumsum and cumprod: the rounded f64 results, any number of lines and elements") {
  if (!default_device().is_cpu()) return;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (const std::int64_t rows : {1, 3, 4, 5, 9, 66}) {
      for (const std::int64_t n : {0, 1, 3, 4, 5, 8, 11, 42}) {
        const auto kinds = difficult_lines(n);
        List values;
        for (std::int64_t row = 0; row < rows; ++row) {
          const List& line = kinds[static_cast<std::size_t>(row) % kinds.size()];
          values.insert(values.end(), line.begin(), line.end());
        }
        const Tensor x = cast(Tensor::from_vector(values, {rows, n}), dtype);
        const List rounded = cast(x, DType::kF64).to_vector<double>();
        for (const bool reverse : {false, true}) {
          for (const bool product : {false, true}) {
            List expected;
            for (auto line = rounded.begin(); line != rounded.end(); line += n) {
              const List part = running_line(List(line, line + n), reverse, product);
              expected.insert(expected.end(), part.begin(), part.end());
            }
            const Tensor wanted = cast(Tensor::from_vector(expected, {rows, n}), dtype);
            for (const Tensor& layout : layouts(x)) {
              INFO(dtype_name(dtype)
                   << x.shape().str() << layout.strides().str() << reverse << product);
              const Tensor y = product ? cumprod(layout, 1, {.reverse = reverse})
                                       : cumsum(layout, 1, {.reverse = reverse});
              CHECK(naive::is_equal(y, naive::array_of(wanted)));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("running results: equal bits for any number of threads") {
  const Tensor x = spread_tensor<float>({40, 3000});
  for (int dim : {0, 1}) {
    CHECK(same_for_any_threads([&] { return cumprod(x, dim).to_vector<float>(); }));
    CHECK(same_for_any_threads([&] { return logcumsumexp(x, dim).to_vector<float>(); }));
    CHECK(same_for_any_threads([&] { return cummax(x, dim).indices.to_vector<std::int64_t>(); }));
  }
}

TEST_CASE("running results: errors") {
  CHECK(thrown<InvalidArgument>([] { logcumsumexp(arange(3), 0); }) ==
        "[logcumsumexp] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([] { cumprod(zeros({2}), 1); }) ==
        "[cumprod] dim 1 does not exist in a tensor of 1 dims; give one from -1 to 0");
  CHECK(thrown<InvalidArgument>([] { cummax(Tensor(), 0); }) ==
        "[cummax] the tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([] { cummin(zeros({2}), -2); }) ==
        "[cummin] dim -2 does not exist in a tensor of 1 dims; give one from -1 to 0");
}

}  // namespace
}  // namespace tessera
