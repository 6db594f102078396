// The dtype of sums, means and products; reductions that leave out NaN; counts; both extremes.
#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/order.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

const double kNan = std::numeric_limits<double>::quiet_NaN();

using List = std::vector<double>;

TEST_CASE("one dim needs no braces") {
  const Tensor x = spread_tensor<double>({3, 5}, 0, 4);
  CHECK(all_equal(mean(x, 1), mean(x, {1})));
  CHECK(all_equal(sum(x, -2, true), sum(x, {-2}, true)));
  CHECK_FALSE((std::is_convertible_v<bool, DimList> || std::is_convertible_v<double, DimList>));
}

// What converting first, and then reducing, gives.
TEST_CASE("sum, mean, prod and softmax: in any dtype, of any dtype") {
  for (DType from : kAllDTypes) {
    const Tensor x = cast(spread_tensor<double>({3, 5}, 0, 4), from);
    for (DType to : kAllDTypes) {
      INFO(dtype_name(from) << " as " << dtype_name(to));
      for (const Tensor& layout : layouts(x)) {
        const Tensor first = cast(layout, to);
        CHECK(all_equal(sum(layout, {1}, {.dtype = to}), cast(sum(first, {1}), to)));
        CHECK(all_equal(sum(layout, {}, {.keep_dims = true, .dtype = to}),
                        cast(sum(first, {}, true), to)));
        CHECK(all_equal(prod(layout, {0}, {.dtype = to}), cast(prod(first, {0}), to)));
        if (!is_floating(to)) continue;
        CHECK(all_equal(mean(layout, {0, 1}, {.dtype = to}), mean(first)));
        CHECK(all_equal(softmax(layout, 0, to), softmax(first, 0)));
        CHECK(all_equal(log_softmax(layout, -1, to), log_softmax(first, -1)));
      }
    }
  }
  const Tensor halves = full({4096}, 1, {.dtype = DType::kBF16});
  CHECK(sum(halves, {}, {.dtype = DType::kF32}).item<float>() == 4096);
  CHECK(sum(arange(4), {}, {.keep_dims = true}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{6});
  CHECK(thrown<InvalidArgument>([] { mean(arange(3), {}, {.keep_dims = true}); }) ==
        "[mean] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([] { mean(zeros({3}), {}, {.dtype = DType::kI32}); }) ==
        "[mean] needs a floating dtype, got i32; cast it first");
  CHECK(thrown<InvalidArgument>([] { softmax(zeros({3}), 0, DType::kI64); }) ==
        "[softmax] needs a floating dtype, got i64; cast it first");
}

List numbers_of(const List& list) {
  List out;
  for (double v : list)
    if (!std::isnan(v)) out.push_back(v);
  return out;
}

double total(const List& list) {
  double out = 0;
  for (double v : numbers_of(list)) out += v;
  return out;
}

double average(const List& list) {
  return total(list) / static_cast<double>(numbers_of(list).size());
}

TEST_CASE("nansum, nanmean, count_nonzero and aminmax: every dtype, layout and dims") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{3, 4, 2}, Shape{2, 0, 3}, Shape{1, 1, 1}}) {
      std::vector<double> numbers = spread(shape.numel(), -3, 4);
      if (is_floating(dtype) && numbers.size() > 9) numbers[1] = numbers[8] = numbers[9] = kNan;
      const Tensor x = cast(Tensor::from_vector(numbers, shape), dtype);
      const naive::Array plain = naive::array_of(x);
      const double rtol = default_tolerance(dtype).rtol;
      for (const std::vector<int>& dims : {std::vector<int>{}, {0}, {1}, {2, 0}}) {
        for (bool keep : {false, true}) {
          for (const Tensor& layout : layouts(x)) {
            INFO(dtype_name(dtype) << shape.str() << " of " << dims.size() << " dims");
            CHECK(naive::is_close(nansum(layout, dims, keep),
                                  naive::reduce(plain, dims, keep, total), rtol, 2e-2));
            const naive::Array nonzero = naive::reduce(plain, dims, keep, [](const List& l) {
              return static_cast<double>(
                  std::count_if(l.begin(), l.end(), [](double v) { return v != 0; }));
            });
            CHECK(naive::is_equal(count_nonzero(layout, dims, keep), nonzero));
            CHECK(count_nonzero(layout).dtype() == DType::kI64);
            if (is_floating(dtype)) {
              CHECK(naive::is_close(nanmean(layout, dims, keep),
                                    naive::reduce(plain, dims, keep, average), rtol, 2e-2));
            }
            if (shape.numel() == 0) continue;
            const MinMax both = aminmax(layout, dims, keep);
            CHECK(all_equal(both.min, amin(layout, dims, keep)));
            CHECK(all_equal(both.max, amax(layout, dims, keep)));
          }
        }
      }
    }
  }
  const Tensor none = full({2, 3}, kNan);
  CHECK(nansum(none).item<float>() == 0);
  CHECK(std::isnan(nanmean(none).item<float>()));
  CHECK(thrown<InvalidArgument>([] { nanmean(arange(3)); }) ==
        "[nanmean] needs a floating dtype, got i64; cast it first");
  CHECK(thrown<InvalidArgument>([] { nansum(zeros({3}), {1}); }) ==
        "[nansum] dim 1 does not exist in a tensor of 1 dims; give one from -1 to 0");
  CHECK(thrown<InvalidArgument>([] {
          aminmax(zeros({2, 0}), {1});
        }) ==
        "[aminmax] the reduced dims of shape [2, 0] have no elements; there is nothing to choose");
}

TEST_CASE("argmax and argmin among all elements") {
  const Tensor x = Tensor::from_vector<float>({1, 5, 7, 2, 7, 0}, {2, 3});
  for (const Tensor& layout : layouts(x)) {
    CHECK(argmax(layout, std::nullopt).item<std::int64_t>() == 2);
    CHECK(argmin(layout, std::nullopt).item<std::int64_t>() == 5);
    CHECK(argmax(layout, std::nullopt).shape() == Shape{});
    CHECK(argmin(layout, std::nullopt, true).shape() == Shape{1, 1});
    CHECK(argmax(layout).to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 1});
  }
}

}  // namespace
}  // namespace tessera
