// Negative indices, take, operations on whole slices, and scatter_reduce against plain loops.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;
using naive::Index;

Tensor numbers(const Shape& shape, DType dtype) {
  return cast(spread_tensor<double>(shape, -9, 9), dtype);
}

// Indices in [low, extent), with repetitions.
Tensor indices(const Shape& shape, std::int64_t extent, std::int64_t low = 0) {
  return cast(
      floor(spread_tensor<double>(shape, static_cast<double>(low), static_cast<double>(extent))),
      DType::kI64);
}

Tensor at(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from_vector(values, shape);
}

Tensor from_front(const Tensor& index, std::int64_t extent) { return remainder(index, extent); }

TEST_CASE("negative indices count from the back") {
  for (DType dtype : kAllDTypes) {
    const Tensor x = numbers({4, 5, 3}, dtype);
    for (const Tensor& layout : layouts(x)) {
      const Tensor rows = indices({40}, 4, -4), columns = indices({40}, 5, -5);
      CHECK(all_equal(index(layout, {rows}), index_select(x, 0, from_front(rows, 4))));
      CHECK(all_equal(index(layout, {rows, columns}),
                      index(x, {from_front(rows, 4), from_front(columns, 5)})));
      for (DType index_dtype : {DType::kI64, DType::kI32}) {
        const Tensor along = indices({4, 70, 3}, 5, -5), one = indices({4, 9, 1}, 5, -5);
        CHECK(all_equal(take_along_dim(layout, cast(along, index_dtype), 1),
                        gather(x, 1, from_front(along, 5))));
        CHECK(all_equal(take_along_dim(layout, cast(one, index_dtype), 1),
                        take_along_dim(x, from_front(one, 5), 1)));
      }
      const Tensor flat = indices({7, 9}, 60, -60);
      const std::vector<double> all = cast(x, DType::kF64).to_vector<double>();
      const std::vector<std::int64_t> places = from_front(flat, 60).to_vector<std::int64_t>();
      const Tensor taken = take(layout, flat);
      CHECK(taken.shape() == Shape{7, 9});
      const std::vector<double> got = cast(taken, DType::kF64).to_vector<double>();
      for (std::size_t i = 0; i < got.size(); ++i)
        CHECK(got[i] == all[static_cast<std::size_t>(places[i])]);
    }
    CHECK(all_equal(index_put(x, {at({-1, 0}, {2})}, zeros({}, {.dtype = dtype})),
                    index_fill(x, 0, at({3, 0}, {2}), 0)));
  }
  CHECK(take(zeros({3}), at({}, {0, 2})).shape() == Shape{0, 2});
}

const std::vector<Shape> kShapes = {{4, 5, 3}, {6}, {1, 1}, {70, 3}, {3, 200}, {5, 0, 3}};

// body(x, dim, list) for every dtype, shape, dim and layout; list has repetitions.
template <class Body>
void for_slices(const Body& body) {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : kShapes) {
      for (int dim = 0; dim < shape.ndim(); ++dim) {
        if (shape[dim] == 0) continue;
        for (std::int64_t n : {0, 1, 3, 90}) {
          for (const Tensor& x : layouts(numbers(shape, dtype))) {
            INFO(dtype_name(dtype)
                 << shape.str() << x.strides().str() << " dim " << dim << ", " << n);
            body(x, dim, indices({n}, shape[dim]));
          }
        }
      }
    }
  }
}

TEST_CASE("index_add, index_copy, index_fill: in the order of the indices") {
  for_slices([](const Tensor& x, int dim, const Tensor& list) {
    const Tensor src = numbers(x.shape().with(dim, list.numel()), x.dtype());
    const Array before = naive::array_of(x), from = naive::array_of(src);
    const std::vector<std::int64_t> places = list.to_vector<std::int64_t>();
    Array added = before, copied = before, filled = before;
    const auto d = static_cast<std::size_t>(dim);
    naive::for_each_index(from.shape, [&](const Index& index) {
      Index to = index;
      to[d] = places[static_cast<std::size_t>(index[d])];
      added.at(to) += 2 * from.at(index);
      copied.at(to) = from.at(index);
      filled.at(to) = 1;
    });
    const bool wraps = x.dtype() == DType::kU8;
    if (x.dtype() != DType::kBool) {
      const Tensor y = index_add(x, dim - x.ndim(), list, src, {.alpha = 2});
      CHECK((wraps || naive::is_close(y, added, default_tolerance(x.dtype()).rtol, 1e-3)));
      const Tensor z = clone(x);
      index_add_(z, dim, list, mul(src, 2));
      CHECK(all_equal(y, z));
    }
    CHECK(naive::is_equal(index_copy(x, dim, list, src), copied));
    CHECK(naive::is_equal(index_fill(x, dim, list, 1), filled));
    const Tensor one = Tensor::scalar(1, {.dtype = DType::kU8});
    CHECK(naive::is_equal(index_fill(x, dim, sub(list, x.dim(dim)), one), filled));
    CHECK(naive::is_equal(x, before));
    index_copy_(x, dim, list, src);
    CHECK(naive::is_equal(x, copied));
    copy_(x, naive::tensor_of(before, x.dtype()));
    index_fill_(x, dim, list, 1);
    CHECK(naive::is_equal(x, filled));
  });
  const Tensor one = at({1}, {}), x = zeros({2, 3});
  CHECK(all_equal(index_add(x, 1, one, ones({2, 1})), index_fill(x, 1, one, 1)));
}

TEST_CASE("index_add: alpha times large integers, and times 16 bits before they are rounded") {
  const Tensor first = at({0}, {1});
  for (const auto& [dtype, value] : {std::pair<DType, std::int64_t>{DType::kI64, 16777217},
                                     {DType::kI64, (std::int64_t{1} << 53) + 1},
                                     {DType::kI32, 16777217}}) {
    const Tensor x = zeros({1}, {.dtype = dtype}), src = cast(at({value}, {1}), dtype);
    const Tensor expected = cast(at({2 * value}, {1}), dtype);
    CHECK(all_equal(index_add(x, 0, first, src, {.alpha = 2}), expected));
    CHECK(all_equal(index_add(x, 0, first, src, {.alpha = -2}), neg(expected)));
    index_add_(x, 0, first, src, {.alpha = 2});
    CHECK(all_equal(x, expected));
  }
  const TensorOptions half{.dtype = DType::kF16};
  const Tensor x = full({1}, -60000, half), src = full({1}, 40000, half);
  CHECK(all_equal(index_add(x, 0, first, src, {.alpha = 2}), full({1}, 20000, half)));
  index_add_(x, 0, first, src, {.alpha = 2});
  CHECK(all_equal(x, full({1}, 20000, half)));
}

double reduced(ScatterReduce reduce, const std::vector<double>& values, bool whole) {
  double out = reduce == ScatterReduce::kProd ? 1 : 0;
  if (reduce == ScatterReduce::kAmax || reduce == ScatterReduce::kAmin) out = values.front();
  for (double v : values) {
    if (reduce == ScatterReduce::kProd) out *= v;
    if (reduce == ScatterReduce::kSum || reduce == ScatterReduce::kMean) out += v;
    if (reduce == ScatterReduce::kAmax) out = std::max(out, v);
    if (reduce == ScatterReduce::kAmin) out = std::min(out, v);
  }
  if (reduce != ScatterReduce::kMean) return out;
  out /= static_cast<double>(values.size());
  return whole ? std::floor(out) : out;
}

constexpr ScatterReduce kReductions[] = {ScatterReduce::kSum, ScatterReduce::kProd,
                                         ScatterReduce::kMean, ScatterReduce::kAmax,
                                         ScatterReduce::kAmin};

struct Scattered {
  Shape x, index;
  int dim;
};

TEST_CASE("scatter_reduce: every reduction, dtype and layout") {
  const std::vector<Scattered> cases = {
      {{4, 5, 3}, {4, 7, 3}, 1}, {{4, 5, 3}, {2, 5, 3}, 0}, {{5}, {9}, 0},      {{1, 1}, {1, 1}, 1},
      {{7, 3}, {40, 2}, 0},      {{2, 9}, {2, 70}, 1},      {{4, 5}, {4, 0}, 1}};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI64, DType::kI32,
                      DType::kU8}) {
    for (const Scattered& c : cases) {
      // Small, so that products and sums are exact in all dtypes.
      const Tensor x = cast(remainder(numbers(c.x, DType::kI64), 3), dtype);
      Shape larger = c.index;
      for (int d = 0; d < larger.ndim(); ++d) ++larger[d];
      const Tensor src = cast(remainder(numbers(larger, DType::kI64), 2), dtype);
      const Tensor places = indices(c.index, c.x[c.dim]);
      const Array before = naive::array_of(x), from = naive::array_of(src),
                  to = naive::array_of(places);
      for (ScatterReduce reduce : kReductions) {
        for (bool include_self : {true, false}) {
          std::vector<std::vector<double>> lists(before.values.size());
          naive::for_each_index(to.shape, [&](const Index& index) {
            Index place = index;
            place[static_cast<std::size_t>(c.dim)] = static_cast<std::int64_t>(to.at(index));
            lists[before.position(place)].push_back(from.at(index));
          });
          Array expected = before;
          for (std::size_t i = 0; i < lists.size(); ++i) {
            if (lists[i].empty()) continue;
            if (include_self) lists[i].push_back(before.values[i]);
            expected.values[i] = reduced(reduce, lists[i], !is_floating(dtype));
          }
          const ScatterReduceOptions options{.reduce = reduce, .include_self = include_self};
          const std::vector<Tensor> x_layouts = layouts(x), src_layouts = layouts(src);
          for (std::size_t i = 0; i < x_layouts.size(); ++i) {
            INFO(dtype_name(dtype) << c.x.str() << c.index.str() << " reduction "
                                   << static_cast<int>(reduce) << include_self);
            const Tensor y = scatter_reduce(x_layouts[i], c.dim, places, src_layouts[i], options);
            CHECK(y.dtype() == dtype);
            CHECK(naive::is_close(y, expected, default_tolerance(dtype).rtol, 1e-6));
            CHECK(naive::is_equal(x_layouts[i], before));
            scatter_reduce_(x_layouts[i], c.dim, places, src_layouts[i], options);
            CHECK(all_equal(x_layouts[i], y));
            copy_(x_layouts[i], naive::tensor_of(before, dtype));
          }
        }
      }
    }
  }
}

TEST_CASE("scatter_reduce: limits, NaN, one rounding, threads") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor same = zeros({2}, {.dtype = DType::kI64});
  const auto largest = [&](const std::vector<float>& values) {
    return scatter_reduce(zeros({1}), 0, same, Tensor::from_vector(values, {2}),
                          {.reduce = ScatterReduce::kAmax})
        .item<float>();
  };
  CHECK(std::isnan(largest({nan, 3})));
  CHECK(std::isnan(largest({3, nan})));
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min(),
                         kHigh = std::numeric_limits<std::int64_t>::max();
  const auto extreme = [&](std::int64_t value, ScatterReduce reduce) {
    return scatter_reduce(at({5}, {1}), 0, at({0}, {1}), at({value}, {1}),
                          {.reduce = reduce, .include_self = false})
        .item<std::int64_t>();
  };
  CHECK(extreme(kLow, ScatterReduce::kAmax) == kLow);
  CHECK(extreme(kHigh, ScatterReduce::kAmin) == kHigh);
  const Tensor many = zeros({1000}, {.dtype = DType::kI64}),
               halves = ones({1000}, {.dtype = DType::kBF16});
  CHECK(scatter_reduce(zeros({1}, {.dtype = DType::kBF16}), 0, many, halves,
                       {.reduce = ScatterReduce::kSum})
            .item(PlanValue{0}) == 1000);
  const Tensor bytes = ones({1000}, {.dtype = DType::kU8});
  CHECK(scatter_reduce(zeros({1}, {.dtype = DType::kU8}), 0, many, bytes,
                       {.reduce = ScatterReduce::kMean, .include_self = false})
            .item<std::uint8_t>() == 0);  // the sum, 1000, wraps to 232
  // More elements of one place than f32 can count: all but the present value are 0.
  const std::int64_t most = std::int64_t{3} << 23;
  const Tensor one_place = zeros({1}, {.dtype = DType::kI64}).expand({most});
  CHECK(scatter_reduce(full({1}, static_cast<double>(most)), 0, one_place,
                       zeros({1}).expand({most}), {.reduce = ScatterReduce::kMean})
            .item<float>() == 1);
  const Tensor src = spread_tensor<float>({300, 301}), places = indices({300, 301}, 300);
  for (ScatterReduce reduce : kReductions) {
    CHECK(same_for_any_threads([&] {
      return scatter_reduce(src, 0, places, src, {.reduce = reduce}).to_vector<float>();
    }));
  }
}

TEST_CASE("scatter of one number") {
  const Tensor x = numbers({3, 4}, DType::kI64), places = at({0, 2, 1, 1}, {2, 2});
  CHECK(all_equal(scatter(x, 0, places, 7), scatter(x, 0, places, full({2, 2}, 7, x.options()))));
  scatter_(x, 1, places, -1);
  CHECK(x.select(0, 1).to_vector<std::int64_t>()[1] == -1);
}

TEST_CASE("slices: errors") {
  const Tensor x = zeros({2, 3}), list = at({0, 3}, {2}), good = at({0, 1}, {2});
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const auto kernel = [](auto body) { return thrown_by_kernel<InvalidArgument>(body); };
  CHECK(kernel([&] {
          index_add(x, 1, list, zeros({2, 2}));
        }) ==
        "[index_add] index 3 at position 1 is outside [0, 3), the extent of dim 1; count from 0");
  CHECK_THAT(kernel([&] {
               index_copy(x, 1, at({-1}, {1}), zeros({2, 1}));
             }),
             Catch::Contains("[index_copy] index -1 at position 0 is outside [0, 3)"));
  CHECK(kernel([&] { index_fill(x, 1, at({-4}, {1}), 0); }) ==
        "[index_fill] index -4 at position 0 is outside [-3, 3); dim 1 has 3 entries, and negative "
        "indices count from its end");
  CHECK_THAT(kernel([&] { take(x, at({6}, {1})); }),
             Catch::Contains("[take] index 6 at position 0"));
  CHECK_THAT(kernel([&] {
               take_along_dim(x, at({-3}, {1, 1}), 0);
             }),
             Catch::Contains("[take_along_dim] index -3 at position 0 is outside [-2, 2)"));
  CHECK_THAT(kernel([&] {
               index(x, {good, at({0, -4}, {2})});
             }),
             Catch::Contains("[index] index -4 at position 1 is outside [-3, 3); dim 1"));
  CHECK_THAT(kernel([&] {
               scatter_reduce(x, 0, at({2}, {1, 1}), x, {.reduce = ScatterReduce::kAmax});
             }),
             Catch::Contains("[scatter_reduce] index 2 at position 0"));
  CHECK(text([&] {
          index_add(x, 0, good, zeros({2, 2}));
        }) ==
        "[index_add] the source has shape [2, 2]; for a tensor of shape [2, 3] and this index it "
        "must be [2, 3]");
  CHECK(text([&] {
          index_fill(x, 0, at({0}, {1, 1}), 1);
        }) == "[index_fill] needs an index of 1 dim, or of none, got shape [1, 1]");
}

TEST_CASE("slices: errors of numbers, bool and repeated elements") {
  const Tensor x = zeros({2, 3}), good = at({0, 1}, {2});
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const Tensor whole = zeros({2}, {.dtype = DType::kI64}),
               flags = zeros({2}, {.dtype = DType::kBool});
  CHECK(text([&] { index_add(whole, 0, good, whole, {.alpha = 0.5}); }) ==
        "[index_add] the number 0.5 is not whole, and the tensor is i64; cast it first");
  CHECK_THAT(text([&] { scatter(whole, 0, good, 0.5); }),
             Catch::Contains("[scatter] the number 0.5"));
  CHECK_THAT(text([&] { index_fill(whole, 0, good, 0.5); }),
             Catch::Contains("[index_fill] the number 0.5"));
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(text([&] { index_fill(whole, 0, good, inf); }) ==
        "[index_fill] the number inf is not whole, and the tensor is i64; cast it first");
  CHECK_THAT(text([&] { scatter(whole, 0, good, -inf); }),
             Catch::Contains("[scatter] the number -inf is not whole"));
  CHECK_THAT(text([&] { index_add(whole, 0, good, whole, {.alpha = inf}); }),
             Catch::Contains("[index_add] the number inf is not whole"));
  CHECK(index_fill(zeros({2}), 0, good, inf).to_vector<float>()[1] == inf);
  CHECK_THAT(text([&] { index_add(flags, 0, good, flags); }),
             Catch::Contains("[index_add] bool values cannot be added"));
  CHECK(text([&] { scatter_reduce(flags, 0, good, flags, {}); }) ==
        "[scatter_reduce] bool values cannot be reduced; cast them to u8");
  const Tensor repeats = zeros({1, 3}).expand({2, 3});
  CHECK_THAT(text([&] {
               index_add_(repeats, 1, good, zeros({2, 2}));
             }),
             Catch::Contains("[index_add_] dim 0 of the tensor written to repeats"));
  CHECK_THAT(text([&] {
               index_copy_(repeats, 1, good, zeros({2, 2}));
             }),
             Catch::Contains("[index_copy_] dim 0 of the tensor written to repeats"));
  CHECK_THAT(text([&] { index_fill_(repeats, 1, good, 1); }),
             Catch::Contains("[index_fill_] dim 0 of the tensor written to repeats"));
  CHECK_THAT(text([&] {
               scatter_reduce_(repeats, 0, at({0}, {1, 1}), x, {});
             }),
             Catch::Contains("[scatter_reduce_] dim 0 of the tensor written to repeats"));
}

}  // namespace
}  // namespace tessera
