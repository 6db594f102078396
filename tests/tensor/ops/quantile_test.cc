// Medians, k-th values, modes and quantiles against sorted lists, and values that PyTorch 2.15
// returns.
#include "tessera/tensor/ops/quantile.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/order.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

using List = std::vector<double>;

// NaN last, as a sort of the library orders it.
List sorted(List list) {
  std::sort(list.begin(), list.end(),
            [](double a, double b) { return !std::isnan(a) && (std::isnan(b) || a < b); });
  return list;
}

bool has_nan(const List& list) {
  return std::any_of(list.begin(), list.end(), [](double v) { return std::isnan(v); });
}

double median_of(const List& list) {
  return has_nan(list) ? kNan : sorted(list)[(list.size() - 1) / 2];
}

double nanmedian_of(const List& list) {
  List numbers;
  for (double v : list)
    if (!std::isnan(v)) numbers.push_back(v);
  return numbers.empty() ? kNan : median_of(numbers);
}

double mode_of(const List& list) {
  double best = 0;
  std::ptrdiff_t most = 0;
  for (double v : sorted(list)) {
    const std::ptrdiff_t times = std::count(list.begin(), list.end(), v);
    if (times > most) best = v, most = times;
  }
  return best;
}

Tensor few_values(const Shape& shape, DType dtype, bool with_nan = false) {
  std::vector<double> values =
      cast(cast(spread_tensor<double>(shape, -5, 6), DType::kI64), DType::kF64).to_vector<double>();
  if (with_nan && values.size() > 6) values[1] = values[4] = values[5] = kNan;
  return cast(Tensor::from_vector(values, shape), dtype);
}

// The values are those of `fold`, and the elements at the indices are the values.
void check_choice(const std::function<ValuesAndIndices(const Tensor&, int, bool)>& choose,
                  const Tensor& x, const std::function<double(const List&)>& fold) {
  const Array plain = naive::array_of(x);
  for (int dim = 0; dim < x.ndim(); ++dim) {
    for (const Tensor& layout : layouts(x)) {
      INFO(dtype_name(x.dtype()) << x.shape().str() << " dim " << dim);
      const Array kept = naive::reduce(plain, {dim}, true, fold);
      const ValuesAndIndices y = choose(layout, dim, true);
      CHECK(y.values.dtype() == x.dtype());
      CHECK(y.indices.dtype() == DType::kI64);
      CHECK(naive::is_equal(y.values, kept));
      Array at = naive::array_of(y.indices);
      naive::for_each_index(kept.shape, [&](naive::Index index) {
        naive::Index from = index;
        from[static_cast<std::size_t>(dim)] = static_cast<std::int64_t>(at.at(index));
        const double element = plain.at(from), value = kept.at(index);
        CHECK((element == value || (std::isnan(element) && std::isnan(value))));
      });
      const ValuesAndIndices dropped = choose(layout, dim - x.ndim(), false);
      CHECK(naive::is_equal(dropped.values, naive::reduce(plain, {dim}, false, fold)));
      CHECK(dropped.indices.shape() == x.shape().without(dim));
    }
  }
}

TEST_CASE("median, nanmedian, kthvalue and mode: every dtype, layout and dim") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{3, 5, 2}, Shape{1}, Shape{2, 301}, Shape{6, 4}}) {
      const bool nan = is_floating(dtype);
      const Tensor x = few_values(shape, dtype, nan);
      const auto choose = [](auto op) {
        return [op](const Tensor& t, int dim, bool keep) { return op(t, dim, keep); };
      };
      check_choice(choose([](auto&... a) { return median(a...); }), x, median_of);
      check_choice(choose([](auto&... a) { return nanmedian(a...); }), x, nanmedian_of);
      check_choice(choose([](auto&... a) { return mode(a...); }), few_values(shape, dtype),
                   mode_of);
      check_choice([](const Tensor& t, int dim, bool keep) { return kthvalue(t, 1, dim, keep); }, x,
                   [](const List& l) { return sorted(l)[0]; });
      check_choice([](const Tensor& t, int dim,
                      bool keep) { return kthvalue(t, (t.dim(dim) + 2) / 2, dim, keep); },
                   x, [](const List& l) { return sorted(l)[l.size() / 2]; });
      CHECK(naive::is_equal(median(x), naive::reduce(naive::array_of(x), {}, false, median_of)));
      CHECK(naive::is_equal(nanmedian(x),
                            naive::reduce(naive::array_of(x), {}, false, nanmedian_of)));
    }
  }
}

TEST_CASE("median, nanmedian and mode: positions") {
  const auto nan = static_cast<float>(kNan);
  const Tensor x = Tensor::from_vector<float>({3, nan, 1, nan}, {4});
  CHECK(median(x, 0).indices.item<std::int64_t>() == 1);
  CHECK(nanmedian(x, 0).indices.item<std::int64_t>() == 2);
  CHECK(nanmedian(x).item<float>() == 1);
  CHECK(std::isnan(nanmedian(full({3}, kNan)).item<float>()));
  // The last occurrence of the smallest of the most frequent.
  const Tensor m = Tensor::from_vector<std::int64_t>({2, 3, 2, 3, 1, 5, 5, 4, 4, 4}, {2, 5});
  CHECK(mode(m).values.to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 4});
  CHECK(mode(m).indices.to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 4});
  CHECK(mode(Tensor::from_vector<float>({nan, nan, 1}, {3})).values.item<float>() == 1);
  CHECK(median(zeros({0, 3}), 1).values.shape() == Shape{0});
  CHECK(mode(zeros({0, 3}), 1).indices.shape() == Shape{0});
}

double quantile_of(const List& list, double q, QuantileInterpolation how) {
  if (has_nan(list)) return kNan;
  const List line = sorted(list);
  const double rank = q * static_cast<double>(line.size() - 1);
  const double below = line[static_cast<std::size_t>(std::floor(rank))],
               above = line[static_cast<std::size_t>(std::ceil(rank))],
               part = rank - std::floor(rank);
  switch (how) {
    case QuantileInterpolation::kLinear:
      return part == 0 ? below : below + part * (above - below);
    case QuantileInterpolation::kLower:
      return below;
    case QuantileInterpolation::kHigher:
      return above;
    case QuantileInterpolation::kMidpoint:
      return part == 0 ? below : (below + above) / 2;
    case QuantileInterpolation::kNearest: {
      const bool even = static_cast<std::int64_t>(std::floor(rank)) % 2 == 0;
      return part < 0.5 || (part == 0.5 && even) ? below : above;
    }
  }
  return 0;
}

TEST_CASE("quantile: every interpolation, floating dtype, layout and dim") {
  const std::vector<double> all = {0, 0.125, 0.3, 0.5, 0.9, 1};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (const Shape& shape : {Shape{3, 5, 2}, Shape{1}, Shape{2, 9}}) {
      const Tensor x = few_values(shape, dtype, shape.ndim() == 2);
      const Array plain = naive::array_of(x);
      for (auto how : {QuantileInterpolation::kLinear, QuantileInterpolation::kLower,
                       QuantileInterpolation::kHigher, QuantileInterpolation::kMidpoint,
                       QuantileInterpolation::kNearest}) {
        for (double q : all) {
          const auto fold = [&](const List& l) { return quantile_of(l, q, how); };
          const double rtol = default_tolerance(dtype).rtol;
          for (int dim = 0; dim < shape.ndim(); ++dim) {
            for (const Tensor& layout : layouts(x)) {
              INFO(dtype_name(dtype) << shape.str() << " dim " << dim << " q " << q << " how "
                                     << static_cast<int>(how));
              for (bool keep : {false, true}) {
                const QuantileOptions options{.dim = dim, .keep_dims = keep, .interpolation = how};
                const Tensor y = quantile(layout, q, options);
                CHECK(y.dtype() == dtype);
                CHECK(naive::is_close(y, naive::reduce(plain, {dim}, keep, fold), rtol, 1e-6));
                const Tensor many = quantile(layout, all, options);
                const auto at = std::find(all.begin(), all.end(), q) - all.begin();
                CHECK(all_equal(many.select(0, at), y));
              }
            }
          }
          CHECK(naive::is_close(quantile(x, q, {.interpolation = how}),
                                naive::reduce(plain, {}, false, fold), rtol, 1e-6));
          CHECK(naive::is_close(quantile(x, q, {.keep_dims = true, .interpolation = how}),
                                naive::reduce(plain, {}, true, fold), rtol, 1e-6));
        }
      }
    }
  }
}

TEST_CASE("quantile: infinities, and several at once") {
  const Tensor x = Tensor::from_vector<double>({kInf, 1, -kInf}, {3});
  CHECK(quantile(x, std::vector<double>{0, 0.5, 1, 0.25}).to_vector<double>() ==
        std::vector<double>{-kInf, 1, kInf, -kInf});
  CHECK(quantile(zeros({2, 3}), std::vector<double>{0.5, 1}, {.keep_dims = true}).shape() ==
        Shape{2, 1, 1});
  CHECK(quantile(zeros({2, 3}), std::vector<double>{0.5}, {.dim = 0}).shape() == Shape{1, 3});
  CHECK(quantile(zeros({2, 3}), std::vector<double>{}, {.dim = 0}).shape() == Shape{0, 3});
  CHECK(thrown<InvalidArgument>([] { quantile(zeros({3}), 1.5); }) ==
        "[quantile] q is 1.5; it must lie in [0, 1]");
  CHECK(thrown<InvalidArgument>([] { quantile(zeros({3}), kNan); }) ==
        "[quantile] q is nan; it must lie in [0, 1]");
  CHECK(thrown<InvalidArgument>([] {
          quantile(zeros({2, 0}), 0.5, {.dim = 0});
        }) == "[quantile] shape [2, 0] has no elements; there is nothing to choose");
  CHECK(thrown<InvalidArgument>([] { quantile(arange(3), 0.5); }) ==
        "[quantile] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([] { quantile(zeros({3}), 0.5, {.dim = 1}); }) ==
        "[quantile] dim 1 does not exist in a tensor of 1 dims; give one from -1 to 0");
}

}  // namespace
}  // namespace tessera
