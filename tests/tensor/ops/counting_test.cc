// Distinct values, bins and searches against std::map and plain loops, and values that PyTorch 2.15
// returns.
#include "tessera/tensor/ops/counting.h"

#include <catch2/catch.hpp>
#include <map>

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

using List = std::vector<double>;
using Positions = std::vector<std::int64_t>;

List values_of(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }
Positions positions_of(const Tensor& x) { return x.to_vector<std::int64_t>(); }

Tensor few_values(const Shape& shape, DType dtype) {
  return cast(cast(spread_tensor<double>(shape, -3, 4), DType::kI64), dtype);
}

constexpr UniqueOptions kAll{.return_inverse = true, .return_counts = true};

TEST_CASE("unique: every dtype and layout") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{4, 5, 3}, Shape{301}}) {
      const Tensor x = few_values(shape, dtype);
      std::map<double, std::int64_t> counts;
      for (double v : values_of(x)) ++counts[v];
      for (const Tensor& layout : layouts(x)) {
        INFO(dtype_name(dtype) << shape.str());
        const UniqueValues y = unique(layout, kAll);
        CHECK(y.values.dtype() == dtype);
        CHECK(y.inverse.shape() == shape);
        const List values = values_of(y.values), elements = values_of(x);
        const Positions found = positions_of(y.counts), inverse = positions_of(y.inverse);
        REQUIRE(values.size() == counts.size());
        std::size_t i = 0;
        for (const auto& [value, count] : counts) {
          CHECK(values[i] == value);
          CHECK(found[i++] == count);
        }
        for (std::size_t e = 0; e < elements.size(); ++e)
          CHECK(values[static_cast<std::size_t>(inverse[e])] == elements[e]);
        const UniqueValues plain = unique(layout);
        CHECK(all_equal(plain.values, y.values));
        CHECK_FALSE((plain.inverse.defined() || plain.counts.defined()));
      }
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const UniqueValues y = unique(Tensor::from_vector<float>({nan, 1, nan, -0.0f, 0}, {5}), kAll);
  CHECK(positions_of(y.counts) == Positions{2, 1, 1, 1});
  CHECK(positions_of(y.inverse) == Positions{2, 1, 3, 0, 0});
}

// Slices of x along `dim`, each as its elements in row-major order.
std::vector<List> slices_of(const Tensor& x, int dim) {
  std::vector<List> out;
  for (std::int64_t i = 0; i < x.dim(dim); ++i) out.push_back(values_of(x.select(dim, i)));
  return out;
}

TEST_CASE("unique along a dim: every dtype, layout and dim against a map of slices") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{0}, Shape{1}, Shape{7}, Shape{4, 5, 3}, Shape{31, 2},
                               Shape{2, 0}, Shape{0, 3}, Shape{23, 1, 2}}) {
      const Tensor x = remainder(few_values(shape, dtype == DType::kBool ? DType::kU8 : dtype), 2);
      for (const Tensor& layout : layouts(cast(x, dtype))) {
        for (int dim = -shape.ndim(); dim < shape.ndim(); ++dim) {
          INFO(dtype_name(dtype) << shape.str() << " dim " << dim);
          const int d = dim < 0 ? dim + shape.ndim() : dim;
          std::map<List, std::int64_t> counts;
          const std::vector<List> slices = slices_of(layout, d);
          for (const List& slice : slices) ++counts[slice];
          for (const bool bounded : {false, true}) {
            UniqueOptions options = kAll;
            options.dim = dim;
            if (bounded) options.bound = static_cast<std::int64_t>(counts.size());
            const UniqueValues y = unique(layout, options);
            CHECK(y.values.dtype() == dtype);
            CHECK(y.inverse.shape() == Shape{shape[d]});
            CHECK(y.values.shape() == shape.with(d, static_cast<std::int64_t>(counts.size())));
            const std::vector<List> found = slices_of(y.values, d);
            const Positions times = positions_of(y.counts), inverse = positions_of(y.inverse);
            REQUIRE(found.size() == counts.size());
            std::size_t i = 0;
            for (const auto& [slice, count] : counts) {
              CHECK(found[i] == slice);
              CHECK(times[i++] == count);
            }
            for (std::size_t e = 0; e < slices.size(); ++e)
              CHECK(found[static_cast<std::size_t>(inverse[e])] == slices[e]);
          }
        }
      }
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  UniqueOptions options = kAll;
  options.dim = 0;
  const UniqueValues y =
      unique(Tensor::from_vector<float>({0, nan, 0, nan, 0, 1, -0.0f, 1}, {4, 2}), options);
  CHECK(positions_of(y.counts) == Positions{2, 1, 1});
  CHECK(positions_of(y.inverse) == Positions{1, 2, 0, 0});
}

TEST_CASE("unique along a dim: a larger bound, errors") {
  UniqueOptions options = kAll;
  options.dim = 1;
  options.bound = 4;
  const Tensor x = Tensor::from_vector<float>({3, 1, 3, 2, 0, 2}, {2, 3});
  const UniqueValues y = unique(x, options);
  CHECK(values_of(y.values) == List{1, 3, 3, 3, 0, 2, 2, 2});
  CHECK(positions_of(y.counts) == Positions{1, 2, 0, 0});
  CHECK(positions_of(y.inverse) == Positions{1, 0, 1});
  CHECK(unique(zeros({2, 3}, {.device = kNull}), options).values.shape() == Shape{2, 4});
  options.bound = 1;
  CHECK_THAT(thrown_by_kernel<InvalidArgument>([&] { unique(x, options); }),
             Catch::Contains("more than 1 distinct values"));
  options.bound.reset();
  options.dim = 2;
  CHECK_THAT(thrown<InvalidArgument>([&] { unique(x, options); }), Catch::Contains("unique"));
  CHECK_THAT(thrown<InvalidArgument>([&] { unique_consecutive(x, options); }),
             Catch::Contains("unique_consecutive"));
  options.dim = 0;
  CHECK_THAT(thrown<StateError>([&] {
               unique(zeros({2, 3}, {.device = kNull}), options);
             }),
             Catch::Contains("give a bound"));
}

TEST_CASE("unique_consecutive along a dim: equal neighbouring slices") {
  const Tensor x =
      Tensor::from_vector<std::int64_t>({1, 1, 0, 0, 1, 1, 1, 0, 0, 2, 2, 2, 2, 2, 2}, {3, 5});
  UniqueOptions options = kAll;
  options.dim = 1;
  for (const Tensor& layout : layouts(x)) {
    const UniqueValues y = unique_consecutive(layout, options);
    CHECK(y.values.shape() == Shape{3, 3});
    CHECK(values_of(y.values) == List{1, 0, 1, 1, 0, 2, 2, 2, 2});
    CHECK(positions_of(y.counts) == Positions{2, 2, 1});
    CHECK(positions_of(y.inverse) == Positions{0, 0, 1, 1, 2});
  }
}

TEST_CASE("unique_consecutive: equal neighbours") {
  for (DType dtype : kAllDTypes) {
    const Tensor x =
        cast(Tensor::from_vector<std::int64_t>({1, 1, 0, 0, 0, 1, 1, 0}, {2, 4}), dtype);
    for (const Tensor& layout : layouts(x)) {
      const UniqueValues y = unique_consecutive(layout, kAll);
      CHECK(values_of(y.values) == List{1, 0, 1, 0});
      CHECK(positions_of(y.counts) == Positions{2, 3, 2, 1});
      CHECK(positions_of(y.inverse) == Positions{0, 0, 1, 1, 1, 2, 2, 3});
      CHECK(y.inverse.shape() == x.shape());
    }
  }
  CHECK(unique_consecutive(zeros({0}), kAll).values.shape() == Shape{0});
}

TEST_CASE("unique with a bound: the size is the bound on every device") {
  UniqueOptions options = kAll;
  options.bound = 5;
  const Tensor x = Tensor::from_vector<float>({3, 1, 3}, {3});
  const UniqueValues y = unique(x, options);
  CHECK(values_of(y.values) == List{1, 3, 3, 3, 3});
  CHECK(positions_of(y.counts) == Positions{1, 2, 0, 0, 0});
  CHECK(positions_of(y.inverse) == Positions{1, 0, 1});
  const Tensor planned = zeros({3}, {.device = kNull});
  CHECK(unique(planned, options).values.shape() == Shape{5});
  CHECK(unique_consecutive(planned, options).counts.shape() == Shape{5});
  CHECK(bincount(zeros({3}, {.dtype = DType::kI64, .device = kNull}), {.bound = 4}).shape() ==
        Shape{4});
  CHECK(unique(zeros({0}), options).values.shape() == Shape{5});
  const std::string text =
      "the size of the result depends on values, which the null device does not have; give a bound";
  CHECK(thrown<StateError>([&] { unique(planned); }) == "[unique] " + text);
  CHECK(thrown<StateError>([&] { unique_consecutive(planned); }) == "[unique_consecutive] " + text);
  CHECK(thrown<StateError>([&] {
          bincount(zeros({3}, {.dtype = DType::kI64, .device = kNull}));
        }) == "[bincount] " + text);
  CHECK(thrown_by_kernel<InvalidArgument>([&] { unique(x, {.bound = 1}); }) ==
        "[unique] there are more than 1 distinct values, the bound; give a larger one");
  CHECK(thrown_by_kernel<InvalidArgument>([&] { unique_consecutive(x, {.bound = 2}); }) ==
        "[unique_consecutive] there are more than 2 distinct values, the bound; give a larger one");
  CHECK(thrown<InvalidArgument>([&] { unique(x, {.bound = -1}); }) ==
        "[unique] the bound is -1; it must not be negative");
}

TEST_CASE("bincount: counts, weights, sizes") {
  for (DType dtype : {DType::kI64, DType::kI32, DType::kU8}) {
    const Tensor x = cast(Tensor::from_vector<std::int64_t>({0, 3, 3, 1, 3}, {5}), dtype);
    for (const Tensor& layout : layouts(x)) {
      const Tensor y = bincount(layout);
      CHECK(y.dtype() == DType::kI64);
      CHECK(positions_of(y) == Positions{1, 1, 0, 3});
      CHECK(positions_of(bincount(layout, {.minlength = 6})) == Positions{1, 1, 0, 3, 0, 0});
      CHECK(positions_of(bincount(layout, {.minlength = 2})) == Positions{1, 1, 0, 3});
      CHECK(positions_of(bincount(layout, {.minlength = 4, .bound = 5})) ==
            Positions{1, 1, 0, 3, 0});
    }
    for (DType of_weights : kAllDTypes) {
      const Tensor weights = cast(Tensor::from_vector<double>({1, 0, 2, 4, 5}, {5}), of_weights);
      const Tensor y = bincount(x, {.weights = weights});
      CHECK(y.dtype() == (of_weights == DType::kF32 ? DType::kF32 : DType::kF64));
      CHECK(values_of(y) == (of_weights == DType::kBool ? List{1, 1, 0, 2} : List{1, 4, 0, 7}));
    }
  }
  const Tensor none = zeros({0}, {.dtype = DType::kI64});
  CHECK(bincount(none).shape() == Shape{0});
  CHECK(positions_of(bincount(none, {.minlength = 3})) == Positions{0, 0, 0});
}

TEST_CASE("bincount: errors") {
  const Tensor x = Tensor::from_vector<std::int64_t>({0, -1, 2}, {3});
  CHECK(thrown_by_kernel<InvalidArgument>([&] { bincount(x); }) ==
        "[bincount] index -1 at position 1 is outside [0, 3), the extent of dim 0; count from 0");
  CHECK(thrown<InvalidArgument>([&] { bincount(zeros({3})); }) ==
        "[bincount] needs i64, i32 or u8, got f32; cast it first");
  CHECK(thrown<InvalidArgument>([&] {
          bincount(arange(4).view({2, 2}));
        }) == "[bincount] needs 1 dim, got shape [2, 2]; flatten it");
  CHECK(thrown<InvalidArgument>([&] { bincount(x, {.minlength = -1}); }) ==
        "[bincount] minlength is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([&] { bincount(x, {.minlength = 3, .bound = 2}); }) ==
        "[bincount] the bound 2 is below the minlength 3");
  CHECK(thrown<InvalidArgument>([&] { bincount(x, {.weights = zeros({2})}); }) ==
        "[bincount] shapes [3] and [2] differ; they must be equal");
}

TEST_CASE("histc: against a loop, and PyTorch's values") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const Tensor x = cast(spread_tensor<double>({7, 30}, -2, 3), dtype);
    List expected(9, 0);
    for (double v : values_of(x)) {
      if (v < -1 || v > 2) continue;
      const double part = std::floor((v + 1) * 9 / 3);
      ++expected[static_cast<std::size_t>(std::min(part, 8.0))];
    }
    for (const Tensor& layout : layouts(x)) {
      const Tensor y = histc(layout, {.bins = 9, .min = -1, .max = 2});
      CHECK(y.dtype() == dtype);
      CHECK(values_of(y) == expected);
    }
  }
  const auto of = [](const std::vector<float>& x, const HistcOptions& options) {
    return values_of(histc(Tensor::from_vector(x, {static_cast<std::int64_t>(x.size())}), options));
  };
  CHECK(of({1, 2, 1, nan, 5, 10, -1}, {.bins = 4, .min = 0, .max = 10}) == List{3, 0, 1, 1});
  CHECK(of({2, 2}, {.bins = 4}) == List{0, 0, 2, 0});
  // An element on an edge belongs to the part above it.
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    INFO(dtype_name(dtype));
    const Tensor edges = cast(arange(49), dtype);
    CHECK(values_of(histc(edges, {.bins = 49, .min = 0, .max = 49})) == List(49, 1));
  }
  // The distance from min, times bins, is beyond f32.
  CHECK(of({0, 5e36f, 2e38f}, {.bins = 5, .min = -1e38, .max = 2e38}) == List{0, 2, 0, 0, 1});
  // The number of the last part is not one of f32.
  const std::int64_t many = (std::int64_t{1} << 24) + 4;
  CHECK(histc(ones({1}), {.bins = many, .min = 0, .max = 1}).select(0, many - 1).item<float>() ==
        1);
  CHECK(of({}, {.bins = 3}) == List{0, 0, 0});
  CHECK(of({1, 2, 5}, {.bins = 2}) == List{2, 1});
  CHECK(of({1, nan}, {.bins = 2}) == List{0, 0});
  CHECK(values_of(histc(Tensor::scalar(3), {.bins = 3})) == List{0, 1, 0});
  CHECK(thrown<InvalidArgument>([] { histc(zeros({2}), {.bins = 0}); }) ==
        "[histc] bins is 0; it must be at least 1");
  CHECK(thrown<InvalidArgument>([] { histc(zeros({2}), {.bins = 2, .min = 5, .max = 1}); }) ==
        "[histc] the range from 5 to 1 is not finite and in order");
  CHECK(thrown<InvalidArgument>([] { histc(arange(3)); }) ==
        "[histc] needs a floating dtype, got i64; cast it first");
}

TEST_CASE("searchsorted and bucketize: every dtype and layout") {
  for (DType dtype : kAllDTypes) {
    for (std::int64_t n : {0, 1, 2, 17}) {
      // Ascending, with equal ones.
      std::vector<double> line;
      for (std::int64_t i = 0; i < 3 * n; ++i)
        line.push_back(dtype == DType::kBool ? i % n > n / 2 : static_cast<double>(i % n * 5 / 4));
      const Tensor sorted = cast(Tensor::from_vector(line, {3, n}), dtype);
      const Tensor x =
          cast(spread_tensor<double>({3, 11}, dtype == DType::kU8 ? 0 : -2, 22), dtype);
      for (bool right : {false, true}) {
        const Array from = naive::array_of(sorted), values = naive::array_of(x);
        Array expected = naive::filled({3, 11}, 0), first = expected;
        naive::for_each_index(expected.shape, [&](const naive::Index& index) {
          for (std::int64_t i = 0; i < n; ++i) {
            const auto before = [&](double element) {
              return right ? element <= values.at(index) : element < values.at(index);
            };
            expected.at(index) += before(from.at({index[0], i})) ? 1 : 0;
            first.at(index) += before(from.at({0, i})) ? 1 : 0;
          }
        });
        for (const Tensor& layout : layouts(x)) {
          INFO(dtype_name(dtype) << " " << n << " right " << right);
          for (const Tensor& lines : layouts(sorted)) {
            const Tensor y = searchsorted(lines, layout, {.right = right});
            CHECK(y.dtype() == DType::kI64);
            CHECK(naive::is_equal(y, expected));
          }
          CHECK(
              naive::is_equal(searchsorted(sorted.select(0, 0), layout, {.right = right}), first));
          CHECK(naive::is_equal(bucketize(layout, sorted.select(0, 0), {.right = right}), first));
        }
      }
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor three = Tensor::from_vector<float>({1, 2, nan}, {3});
  CHECK(positions_of(searchsorted(three, Tensor::from_vector<float>({3, nan, 2}, {3}))) ==
        Positions{3, 3, 1});
  // Promoted: 2 is above 1.5.
  CHECK(positions_of(bucketize(arange(3), Tensor::from_vector<float>({0.5f, 1.5f}, {2}))) ==
        Positions{0, 1, 2});
  const Tensor many = spread_tensor<float>({300, 301}), bounds = linspace(-2, 2, 77);
  CHECK(same_for_any_threads([&] { return positions_of(bucketize(many, bounds)); }));
}

TEST_CASE("searchsorted and bucketize: errors") {
  CHECK(
      thrown<InvalidArgument>([] {
        searchsorted(zeros({2, 3}), zeros({3, 4}));
      }) ==
      "[searchsorted] the sorted tensor has shape [2, 3] and the values [3, 4]; give one line, or "
      "one for each line of values");
  CHECK(thrown<InvalidArgument>([] { searchsorted(Tensor(), zeros({3})); }) ==
        "[searchsorted] the sorted tensor is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([] { searchsorted(zeros({3}), Tensor()); }) ==
        "[searchsorted] the tensor of values is undefined; pass a tensor");
  CHECK(thrown<InvalidArgument>([] {
          bucketize(zeros({3}), zeros({2, 3}));
        }) == "[bucketize] the boundaries have shape [2, 3]; they need 1 dim");
  CHECK(thrown<InvalidArgument>([] { bucketize(zeros({3}), Tensor()); }) ==
        "[bucketize] the tensor of boundaries is undefined; pass a tensor");
}

}  // namespace
}  // namespace tessera
