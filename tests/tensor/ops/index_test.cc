// Gather, scatter and lists of indices against index arithmetic; errors of all indexing.
#include "tessera/tensor/ops/index.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/streams/stream.h"
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

// Indices in [0, extent), with repetitions.
Tensor indices(const Shape& shape, std::int64_t extent, DType dtype = DType::kI64) {
  return cast(spread_tensor<double>(shape, 0, static_cast<double>(extent)), dtype);
}

Index along(Index index, std::size_t dim, double at) {
  index[dim] = static_cast<std::int64_t>(at);
  return index;
}

struct Case {
  Shape x;
  Shape index;
  int dim;
};
const std::vector<Case> kCases = {
    {{4, 5, 3}, {4, 7, 3}, 1}, {{4, 5, 3}, {2, 5, 3}, 0},
    {{4, 5, 3}, {3, 2, 6}, 2}, {{5}, {9}, 0},
    {{1, 1}, {1, 1}, 1},       {{70, 3}, {130, 2}, 0},
    {{3, 200}, {3, 700}, 1},   {{4, 5, 3}, {4, 0, 3}, 1},
    {{0, 3}, {0, 2}, 1},       {{3, 200}, {3, 5}, 1},
    {{300, 3}, {4, 2}, 0},
};

TEST_CASE("gather: every dtype, layout and dim") {
  for (DType dtype : kAllDTypes) {
    for (const Case& c : kCases) {
      const Tensor x = numbers(c.x, dtype);
      const auto d = static_cast<std::size_t>(c.dim);
      for (DType index_dtype : {DType::kI64, DType::kI32}) {
        const Tensor at = indices(c.index, c.x[c.dim], index_dtype);
        const Array plain = naive::array_of(x), places = naive::array_of(at);
        const Array expected = naive::pick(plain, places.shape, [&](const Index& index) {
          return along(index, d, places.at(index));
        });
        for (const Tensor& layout : layouts(x)) {
          for (const Tensor& index_layout : layouts(at)) {
            INFO(dtype_name(dtype) << c.x.str() << c.index.str() << " dim " << c.dim);
            const Tensor y = gather(layout, c.dim - c.x.ndim(), index_layout);
            CHECK(y.dtype() == dtype);
            CHECK(naive::is_equal(y, expected));
          }
        }
      }
    }
  }
}

TEST_CASE("scatter and scatter_add: in the order of the indices, every dtype and layout") {
  for (DType dtype : kAllDTypes) {
    for (const Case& c : kCases) {
      const Tensor x = numbers(c.x, dtype), at = indices(c.index, c.x[c.dim]);
      Shape larger = c.index;
      for (int d = 0; d < larger.ndim(); ++d) ++larger[d];
      const Tensor src = numbers(larger, dtype);
      const auto d = static_cast<std::size_t>(c.dim);
      const Array before = naive::array_of(x), places = naive::array_of(at),
                  from = naive::array_of(src);
      Array assigned = before, added = before;
      naive::for_each_index(places.shape, [&](const Index& index) {
        assigned.at(along(index, d, places.at(index))) = from.at(index);
        added.at(along(index, d, places.at(index))) += from.at(index);
      });
      const std::vector<Tensor> x_layouts = layouts(x), src_layouts = layouts(src);
      for (std::size_t i = 0; i < x_layouts.size(); ++i) {
        INFO(dtype_name(dtype) << c.x.str() << c.index.str() << " dim " << c.dim);
        CHECK(naive::is_equal(scatter(x_layouts[i], c.dim, at, src_layouts[i]), assigned));
        if (dtype != DType::kBool) {
          const bool wraps = dtype == DType::kU8 || dtype == DType::kI32;
          const Tensor y = scatter_add(x_layouts[i], c.dim, at, src_layouts[i]);
          CHECK((wraps || naive::is_close(y, added, default_tolerance(dtype).rtol, 1e-4)));
          CHECK(naive::is_equal(x_layouts[i], before));
          scatter_add_(x_layouts[i], c.dim, at, src_layouts[i]);
          CHECK(all_equal(x_layouts[i], y));
        }
        copy_(x_layouts[i], naive::tensor_of(before, dtype));
        scatter_(x_layouts[i], c.dim, at, src_layouts[i]);
        CHECK(naive::is_equal(x_layouts[i], assigned));
      }
    }
  }
}

TEST_CASE("scatter_add: integers wrap around, 16-bit sums are rounded once") {
  const Tensor same = zeros({3}, {.dtype = DType::kI64});
  const Tensor bytes = full({3}, 100, {.dtype = DType::kU8});
  CHECK(scatter_add(zeros({1}, {.dtype = DType::kU8}), 0, same, bytes).to_vector<std::uint8_t>() ==
        std::vector<std::uint8_t>{44});
  const Tensor ints = full({3}, 2'000'000'000, {.dtype = DType::kI32});
  CHECK(scatter_add(zeros({1}, {.dtype = DType::kI32}), 0, same, ints).to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{1'705'032'704});
  const Tensor many = zeros({1000}, {.dtype = DType::kI64});
  const Tensor halves = ones({1000}, {.dtype = DType::kBF16});
  CHECK(scatter_add(zeros({1}, {.dtype = DType::kBF16}), 0, many, halves).item(PlanValue{0}) ==
        1000);
}

// Few or many indices of one element each, or rows of more elements than are converted at a time.
TEST_CASE("16-bit sums: as f32 sums in the order of the indices, rounded once; NaN stays") {
  struct Sums {
    Shape x;
    std::int64_t count;
    int dim;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const Sums& c : {Sums{{7, 1100}, 40, 0}, Sums{{7, 1100}, 40, 1}, Sums{{2, 500, 3}, 30, 1},
                          Sums{{2, 30, 3}, 700, 1}, Sums{{4000}, 6, 0}, Sums{{40}, 900, 0}}) {
      INFO(dtype_name(dtype) << c.x.str() << " dim " << c.dim);
      const Tensor at = indices({c.count}, c.x[c.dim]);
      const Tensor x = numbers(c.x, dtype), src = numbers(c.x.with(c.dim, c.count), dtype);
      fill_(src.select(c.dim, 1), nan);
      const Tensor wide = cast(x, DType::kF32);
      const Array places = naive::array_of(at);
      for (std::int64_t i = 0; i < c.count; ++i) {
        const auto place = static_cast<std::int64_t>(places.values[static_cast<std::size_t>(i)]);
        add_(wide.select(c.dim, place), cast(src.select(c.dim, i), DType::kF32));
      }
      const Array expected = naive::array_of(cast(wide, dtype));
      for (const Tensor& layout : layouts(x)) {
        CHECK(naive::is_equal(index_add(layout, c.dim, at, src), expected));
        index_add_(layout, c.dim, at, src);
        CHECK(naive::is_equal(layout, expected));
      }
      CHECK(same_for_any_threads(
          [&] { return cast(index_add(x, c.dim, at, src), DType::kF32).to_vector<float>(); }));
    }
  }
}

TEST_CASE("gather, scatter and embedding: equal bits for any number of threads") {
  const Tensor rows = indices({3000}, 50), x = spread_tensor<float>({50, 70});
  const Tensor dy = spread_tensor<float>({3000, 70});
  CHECK(same_for_any_threads([&] { return embedding(x, rows).to_vector<float>(); }));
  CHECK(same_for_any_threads([&] {
    const Tensor dweight = Tensor::empty({50, 70});
    embedding_backward_into(dweight, dy, rows);
    return dweight.to_vector<float>();
  }));
  for (int dim : {0, 1}) {
    const Tensor at = indices({300, 300}, 300);
    const Tensor src = spread_tensor<float>({300, 300});
    CHECK(same_for_any_threads([&] { return scatter_add(src, dim, at, src).to_vector<float>(); }));
    CHECK(same_for_any_threads([&] { return scatter(src, dim, at, src).to_vector<float>(); }));
    const Tensor half = cast(src, DType::kBF16);
    CHECK(same_for_any_threads(
        [&] { return cast(scatter_add(half, dim, at, half), DType::kF32).to_vector<float>(); }));
    CHECK(same_for_any_threads([&] { return gather(src, dim, at).to_vector<float>(); }));
  }
}

TEST_CASE("take_along_dim broadcasts outside the dim") {
  const Tensor x = numbers({4, 1, 3}, DType::kF32), at = indices({1, 2, 5}, 3);
  const Array plain = naive::array_of(x), places = naive::array_of(at);
  const Array expected = naive::pick(plain, {4, 2, 5}, [&](const Index& index) {
    return Index{index[0], 0, static_cast<std::int64_t>(places.at({0, index[1], index[2]}))};
  });
  CHECK(naive::is_equal(take_along_dim(x, at, -1), expected));
  CHECK_THAT(thrown<InvalidArgument>([&] { take_along_dim(x, at.select(0, 0), 1); }),
             Catch::Contains("[take_along_dim] the index has shape [2, 5] and the tensor"));
}

TEST_CASE("index_select: every dtype, layout and dim") {
  for (DType dtype : kAllDTypes) {
    const Tensor x = numbers({4, 5, 3}, dtype);
    const Array plain = naive::array_of(x);
    for (const Tensor& layout : layouts(x)) {
      for (int dim = 0; dim < 3; ++dim) {
        for (std::int64_t count : {0, 1, 7}) {
          const Tensor at = indices({count}, x.dim(dim), DType::kI32);
          const Array places = naive::array_of(at);
          const auto d = static_cast<std::size_t>(dim);
          Index shape = plain.shape;
          shape[d] = count;
          CHECK(naive::is_equal(index_select(layout, dim, layouts(at).back()),
                                naive::pick(plain, shape, [&](const Index& index) {
                                  return along(index, d, places.at({index[d]}));
                                })));
        }
      }
    }
  }
}

TEST_CASE("index and index_put: one to three indices that broadcast") {
  for (DType dtype : kAllDTypes) {
    const Tensor x = numbers({4, 5, 3}, dtype);
    const Tensor a = indices({2, 1}, 4), b = indices({6}, 5, DType::kI32),
                 c = indices({2, 6}, 3).transpose(0, 1).transpose(0, 1);
    const Array ia = naive::array_of(a), ib = naive::array_of(b), ic = naive::array_of(c);
    const std::vector<std::vector<Tensor>> lists = {{a}, {a, b}, {a, b, c}};
    for (const Tensor& layout : layouts(x)) {
      for (const auto& list : lists) {
        const std::size_t count = list.size();
        const Array plain = naive::array_of(x);
        Index common = count == 1 ? Index{2, 1} : Index{2, 6};
        Index shape = common;
        for (std::size_t d = count; d < 3; ++d) shape.push_back(plain.shape[d]);
        const auto source = [&](const Index& index) {
          Index from = {static_cast<std::int64_t>(ia.at({index[0], 0}))};
          if (count > 1) from.push_back(static_cast<std::int64_t>(ib.at({index[1]})));
          if (count > 2) from.push_back(static_cast<std::int64_t>(ic.at({index[0], index[1]})));
          for (std::size_t d = 2; d < index.size(); ++d) from.push_back(index[d]);
          return from;
        };
        CHECK(naive::is_equal(index(layout, list), naive::pick(plain, shape, source)));

        Shape row = naive::shape_of(shape);
        for (const Tensor& values : {numbers(row, dtype), numbers({row.back()}, dtype)}) {
          const Array from = naive::array_of(contiguous(values.expand(row)));
          Array assigned = plain, added = plain;
          naive::for_each_index(shape, [&](const Index& at) {
            assigned.at(source(at)) = from.at(at);
            added.at(source(at)) += from.at(at);
          });
          CHECK(naive::is_equal(index_put(layout, list, values), assigned));
          if (dtype == DType::kBool || dtype == DType::kU8) continue;
          CHECK(naive::is_close(index_put(layout, list, values, {.accumulate = true}), added,
                                default_tolerance(dtype).rtol, 1e-4));
          CHECK(naive::is_equal(layout, plain));
        }
      }
    }
  }
  const Tensor none = indices({0}, 1);
  CHECK(index(zeros({3, 2}), {none}).shape() == Shape{0, 2});
  CHECK(index_put(ones({3, 2}), {none}, zeros({0, 2})).to_vector<float>() ==
        std::vector<float>(6, 1));
}

TEST_CASE("an index outside its dim is named, with its position") {
  const Tensor x = zeros({2, 3});
  const auto at = [](const std::vector<std::int64_t>& values, const Shape& shape) {
    return Tensor::from_vector(values, shape);
  };
  CHECK(thrown_by_kernel<InvalidArgument>([&] {
          gather(x, 1, at({0, 1, 2, 3}, {2, 2}));
        }) ==
        "[gather] index 3 at position 3 is outside [0, 3), the extent of dim 1; count from 0");
  CHECK(thrown_by_kernel<InvalidArgument>([&] {
          gather(x, 0, at({0, -1}, {1, 2}));
        }) ==
        "[gather] index -1 at position 1 is outside [0, 2), the extent of dim 0; count from 0");
  CHECK(thrown_by_kernel<InvalidArgument>([&] {
          scatter(x, 1, at({3}, {1, 1}), x);
        }) ==
        "[scatter] index 3 at position 0 is outside [0, 3), the extent of dim 1; count from 0");
  CHECK_THAT(thrown_by_kernel<InvalidArgument>([&] {
               scatter_(x, 1, at({3}, {1, 1}), x);
             }),
             Catch::Contains("[scatter_] index 3 at position 0"));
  CHECK_THAT(thrown_by_kernel<InvalidArgument>([&] {
               scatter_add(x, 1, at({3}, {1, 1}), x);
             }),
             Catch::Contains("[scatter_add] index 3 at position 0"));
  CHECK(thrown_by_kernel<InvalidArgument>([&] {
          index_select(x, 1, at({0, 5}, {2}));
        }) ==
        "[index_select] index 5 at position 1 is outside [0, 3), the extent of dim 1; count from "
        "0");
  CHECK(
      thrown_by_kernel<InvalidArgument>([&] {
        index(x, {at({0, 1}, {2}), at({0, 3}, {2})});
      }) ==
      "[index] index 3 at position 1 is outside [-3, 3); dim 1 has 3 entries, and negative indices "
      "count from its end");
  CHECK_THAT(thrown_by_kernel<InvalidArgument>([&] {
               index_put(x, {at({2}, {1})}, ones({1, 3}));
             }),
             Catch::Contains("[index_put] index 2 at position 0 is outside [-2, 2)"));
  CHECK_THAT(thrown_by_kernel<InvalidArgument>([&] {
               embedding(x, at({0, 0, 9}, {3, 1}));
             }),
             Catch::Contains("[embedding] index 9 at position 2 is outside [0, 2)"));
  CHECK_THAT(thrown_by_kernel<InvalidArgument>([&] {
               embedding_backward_into(x, ones({1, 3}), at({9}, {1}));
             }),
             Catch::Contains("[embedding_backward_into] index 9 at position 0"));
}

TEST_CASE("indices at the ends of i64 are outside every dim") {
  const Tensor x = spread_tensor<float>({4, 3});
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min(),
                         kHigh = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t bad : {kLow, kLow + 1, kLow + 3, kHigh - 3, kHigh - 1, kHigh}) {
    for (std::int64_t position : {0, 2, 8}) {
      CAPTURE(bad, position);
      std::vector<std::int64_t> values(9, 1);
      values[static_cast<std::size_t>(position)] = bad;
      const Tensor many = Tensor::from_vector(values, {9});
      const std::string named =
          "index " + std::to_string(bad) + " at position " + std::to_string(position);
      CHECK_THAT(thrown_by_kernel<InvalidArgument>([&] {
                   gather(x, 1, many.view({3, 3}));
                 }),
                 Catch::Contains(named));
      CHECK_THAT(thrown_by_kernel<InvalidArgument>([&] { embedding(x, many); }),
                 Catch::Contains(named));
      CHECK_THAT(thrown_by_kernel<InvalidArgument>([&] { index(x, {many}); }),
                 Catch::Contains(named));
    }
  }
}

TEST_CASE("a queued stream reports a bad index when it is waited for") {
  const DeviceStream stream =
      DeviceStream::create(default_device(), StreamKind::kQueued, "indices");
  const Tensor x = zeros({2, 3}), at = full({1, 1}, 7, {.dtype = DType::kI64});
  stream.wait(current_stream(default_device()).record());
  StreamGuard guard(stream);
  gather(x, 1, at);
  CHECK_THAT(thrown<InvalidArgument>([&] { stream.synchronize(); }),
             Catch::Contains("[gather] index 7 at position 0"));
}

TEST_CASE("indexing: errors") {
  const Tensor x = zeros({2, 3}), at = zeros({2, 3}, {.dtype = DType::kI64});
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  CHECK(text([&] {
          gather(x, 0, zeros({2, 3}));
        }) == "[gather] the index has dtype f32; it must be i64 or i32");
  CHECK(text([&] { gather(x, 0, at.select(0, 0)); }) ==
        "[gather] the index has shape [3] and the tensor [2, 3]; they need as many dims");
  CHECK(text([&] {
          gather(x, 0, zeros({2, 4}, {.dtype = DType::kI64}));
        }) ==
        "[gather] the index has shape [2, 4] and the tensor [2, 3]; outside dim 0 it must fit "
        "inside");
  CHECK_THAT(text([&] { gather(x, 2, at); }), Catch::Contains("[gather]"));
  CHECK_THAT(text([&] { gather(Tensor(), 0, at); }), Catch::Contains("the tensor is undefined"));
  CHECK_THAT(text([&] { gather(x, 0, Tensor()); }), Catch::Contains("the index is undefined"));
  CHECK_THAT(text([&] {
               gather(x, 0, zeros({2, 3}, {.dtype = DType::kI64, .device = kNull}));
             }),
             Catch::Contains("move them to one device"));
  CHECK(text([&] {
          scatter(x, 0, at, zeros({1, 3}));
        }) == "[scatter] the index has shape [2, 3] and the source [1, 3]; it must fit inside");
  CHECK_THAT(text([&] { scatter(x, 0, at, at); }), Catch::Contains("f32 and i64"));
  const Tensor flags = zeros({2, 3}, {.dtype = DType::kBool});
  CHECK(text([&] { scatter_add(flags, 0, at, flags); }) ==
        "[scatter_add] bool values cannot be added; cast them first");
  CHECK_THAT(text([&] { scatter_add_(flags, 0, at, flags); }), Catch::Contains("bool values"));
  CHECK_THAT(
      text([&] { index_put(flags, {at.select(0, 0)}, flags.select(0, 0), {.accumulate = true}); }),
      Catch::Contains("[index_put] bool values"));
  const Tensor repeats = zeros({1, 3}).expand({2, 3});
  CHECK(text([&] { scatter_(repeats, 0, at, x); }) ==
        "[scatter_] dim 0 of the tensor written to repeats one element 2 times; clone() it first");
  CHECK_THAT(text([&] { scatter_add_(repeats, 0, at, x); }),
             Catch::Contains("[scatter_add_] dim 0 of the tensor written to repeats"));
  CHECK(text([&] { index_select(x, 0, at); }) ==
        "[index_select] needs an index of 1 dim, got shape [2, 3]");
  CHECK(text([&] { index(x, {}); }) ==
        "[index] 0 indices for a tensor of shape [2, 3]; give between 1 and 2");
  CHECK_THAT(text([&] { index(x, {at, at, at}); }), Catch::Contains("[index] 3 indices"));
  CHECK_THAT(text([&] {
               index(x, {at, zeros({4}, {.dtype = DType::kI64})});
             }),
             Catch::Contains("[index]"));
  CHECK(text([&] {
          index_put(x, {at.select(0, 0)}, zeros({5, 3, 3}));
        }) == "[index_put] the values have shape [5, 3, 3], which does not broadcast to [3, 3]");
}

}  // namespace
}  // namespace tessera
