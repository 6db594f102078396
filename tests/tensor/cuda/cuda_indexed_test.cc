// How CUDA kernels use indices and sort: dims, distribution of rows over threads, plans, keys and
// the network of short sorts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/tensor/kernels/cuda/elementwise/index_dims.h"
#include "tessera/tensor/kernels/cuda/reductions/bitonic.h"
#include "tessera/tensor/kernels/math/sort_key.h"
#include "tessera/tensor/kernels/plans/scatter_plan.h"
#include "tessera/tensor/kernels/plans/sort_plan.h"

namespace tessera {
namespace {

// [3, 5, 4] indexed along dim 1; the indices are repeated in dim 2.
IndexedWalk small_walk() {
  return {.shape = {3, 5, 4},
          .indexed = {100, 0, 1},
          .index = {5, 1, 0},
          .other = {20, 4, 1},
          .dim = 1,
          .stride = 10,
          .extent = 7,
          .named_dim = 1};
}

TEST_CASE("index dims: places and positions of elements in row-major order") {
  const cuda::IndexDims dims = cuda::index_dims(small_walk(), [](int) { return true; });
  CHECK(dims.numel() == 60);
  std::int64_t i = 0;
  for (std::int64_t a = 0; a < 3; ++a) {
    for (std::int64_t b = 0; b < 5; ++b) {
      for (std::int64_t c = 0; c < 4; ++c, ++i) {
        const cuda::IndexPlace place = cuda::place_of(dims, i);
        CHECK(place.indexed == 100 * a + c);
        CHECK(place.index == 5 * a + b);
        CHECK(place.other == 20 * a + 4 * b + c);
        CHECK(cuda::position_of(dims, i) == 5 * a + b);  // a repeated index counts once
      }
    }
  }
}

TEST_CASE("index dims: some of them, in wider units") {
  cuda::IndexDims dims = cuda::index_dims(small_walk(), [](int d) { return d != 2; });
  CHECK(dims.ndim == 2);
  dims.in_units(4);
  const cuda::IndexPlace place = cuda::place_of(dims, 7);  // (1, 2)
  CHECK(place.indexed == 25);
  CHECK(place.other == 5 + 2);
  CHECK(place.index == 7);
  CHECK(cuda::index_dims(small_walk(), [](int) { return false; }).numel() == 1);
}

TEST_CASE("rows: the widest access that addresses, strides and lengths allow") {
  CHECK(cuda::unit_bytes(0) == 16);
  CHECK(cuda::unit_bytes(32 | 48) == 16);
  CHECK(cuda::unit_bytes(32 | 8) == 8);
  CHECK(cuda::unit_bytes(4 | 16) == 4);
  CHECK(cuda::unit_bytes(0x1000 | 6) == 2);
  CHECK(cuda::unit_bytes(7) == 1);
}

TEST_CASE("rows: each unit is one thread's") {
  for (std::int64_t units : {1, 2, 3, 4, 5, 31, 32, 33, 96, 192, 1000, 5000}) {
    for (int each : {1, 4}) {
      const cuda::RowGroups groups = cuda::row_groups(units, each, 128);
      CHECK(groups.lanes() <= 128);
      std::vector<int> visits(static_cast<std::size_t>(units));
      for (std::int64_t slice = 0; slice < groups.slices; ++slice) {
        for (int lane = 0; lane < groups.lanes(); ++lane) {
          for (int k = 0; k < each; ++k) {
            const std::int64_t unit =
                slice * each * groups.lanes() + lane + std::int64_t{k} * groups.lanes();
            if (unit < units) ++visits[static_cast<std::size_t>(unit)];
          }
        }
      }
      CHECK(visits == std::vector<int>(static_cast<std::size_t>(units), 1));
    }
  }
  CHECK(cuda::row_groups(1, 4, 128).lanes() == 1);
  CHECK(cuda::row_groups(192, 4, 128).lanes() == 64);
}

TEST_CASE("radix sorts: tiles cover a line, and are never too many") {
  for (std::int64_t length : {1, 255, 256, 257, 65536, 131072, 131073, 1 << 24}) {
    const RadixPlan plan{.lines = 1, .length = length, .passes = 2};
    CHECK(plan.chunk() % RadixPlan::kThreads == 0);
    CHECK(plan.tiles() <= RadixPlan::kMostTiles);
    CHECK(plan.tiles() * plan.chunk() >= length);
    CHECK((plan.tiles() - 1) * plan.chunk() < length);
    CHECK(plan.bytes() >= static_cast<std::size_t>(16 * length));
  }
  CHECK(radix_passes(0) == 0);
  CHECK(radix_passes(1) == 1);
  CHECK(radix_passes(8) == 1);
  CHECK(radix_passes(16) == 2);
  CHECK(radix_passes(17) == 3);
}

// Rows [count, 64] that share an index, or indices of their own in `lines` lines.
IndexedWalk rows_walk(std::int64_t count, std::int64_t extent) {
  return {.shape = {count, 64},
          .indexed = {0, 1},
          .index = {1, 0},
          .other = {64, 1},
          .dim = 0,
          .stride = 64,
          .extent = extent};
}
IndexedWalk lines_walk(std::int64_t lines, std::int64_t count, std::int64_t extent) {
  return {.shape = {lines, count},
          .indexed = {extent, 0},
          .index = {count, 1},
          .other = {count, 1},
          .dim = 1,
          .stride = 1,
          .extent = extent};
}

TEST_CASE("scatter: short lines and many lines are walked, others are sorted") {
  CHECK_FALSE(scatter_plan(rows_walk(32, 50'000)).sorted);
  const ScatterPlan embedding = scatter_plan(rows_walk(65536, 50'257));
  CHECK(embedding.sorted);
  CHECK(embedding.items() == 65536);
  CHECK(embedding.keys == 50'257);
  CHECK(embedding.radix().passes == 2);
  // A key beyond the last one means "no destination".
  CHECK(scatter_plan(rows_walk(100, 255)).radix().passes == 1);
  CHECK(scatter_plan(rows_walk(100, 256)).radix().passes == 2);

  const ScatterPlan own = scatter_plan(lines_walk(10, 1000, 300));
  CHECK(own.sorted);
  CHECK(own.items() == 10'000);
  CHECK(own.keys == 3000);
  CHECK_FALSE(scatter_plan(lines_walk(ScatterPlan::kManyLines, 1000, 300)).sorted);
  // Exceeds 32 bits.
  CHECK_FALSE(scatter_plan(rows_walk(100, std::int64_t{1} << 32)).sorted);
  CHECK_FALSE(scatter_plan(lines_walk(1000, 100, 5'000'000)).sorted);
  CHECK_FALSE(scatter_plan(lines_walk(0, 100, 10)).sorted);
}

TEST_CASE("argsort: what a block sorts, and rounds of longer lines") {
  const auto plan_of = [](const Shape& shape, DType dtype) {
    ArgsortKernel::Args args;
    args.x.shape = shape;
    args.x.dtype = dtype;
    return argsort_plan(args);
  };
  CHECK(plan_of({1000, 2048}, DType::kF32).in_blocks);
  const ArgsortPlan longer = plan_of({100'000, 2049}, DType::kF32);
  CHECK_FALSE(longer.in_blocks);
  CHECK(longer.round_lines() == (std::int64_t{1} << 24) / 2049);
  CHECK(longer.round_lines() <= 65535);  // the grid's second extent
  CHECK(longer.radix().passes == 4);
  CHECK(plan_of({2, 50'000}, DType::kF64).radix().passes == 8);
  CHECK(plan_of({2, 50'000}, DType::kF64).round_lines() == 2);
  CHECK(plan_of({3, 1 << 26}, DType::kI64).round_lines() == 1);
}

template <class T>
void check_keys(std::vector<T> ascending) {
  for (std::size_t i = 0; i + 1 < ascending.size(); ++i)
    CHECK(sort_key(ascending[i]) < sort_key(ascending[i + 1]));
}

TEST_CASE("sort keys: in the order of the elements, NaN the largest, -0 equal to 0") {
  const auto floats = []<class T>() {
    using Limits = std::numeric_limits<T>;
    check_keys<T>({-Limits::infinity(), Limits::lowest(), T(-1), -Limits::denorm_min(), T(0),
                   Limits::denorm_min(), Limits::min(), T(1), T(1) + Limits::epsilon(),
                   Limits::max(), Limits::infinity(), Limits::quiet_NaN()});
    CHECK(sort_key(T(-0.0)) == sort_key(T(0)));
    CHECK(sort_key(-Limits::quiet_NaN()) == sort_key(Limits::quiet_NaN()));
  };
  floats.template operator()<float>();
  floats.template operator()<double>();
  const auto integers = []<class T>() {
    check_keys<T>(
        {std::numeric_limits<T>::min(), T(-2), T(-1), T(0), T(1), std::numeric_limits<T>::max()});
  };
  integers.template operator()<std::int32_t>();
  integers.template operator()<std::int64_t>();
}

// A network that sorts all lines of zeros and ones sorts everything (Knuth, volume 3, 5.3.4).
TEST_CASE("bitonic sorts: every line of zeros and ones, two lines in a block") {
  constexpr int kLength = 8, kElements = 16;
  for (unsigned bits = 0; bits < 1u << kLength; ++bits) {
    std::vector<int> values;
    for (int i = 0; i < kElements; ++i)
      values.push_back(static_cast<int>((i < kLength ? bits : ~bits) >> (i % kLength) & 1));
    for (int block = 2; block <= kLength; block *= 2) {
      for (int distance = block / 2; distance > 0; distance /= 2) {
        for (int number = 0; number < kElements / 2; ++number) {
          const cuda::BitonicPair pair = cuda::bitonic_pair(number, kLength, block, distance);
          int &a = values[static_cast<std::size_t>(pair.first)],
              &b = values[static_cast<std::size_t>(pair.first + distance)];
          if ((b < a) == pair.ascending && a != b) std::swap(a, b);
        }
      }
    }
    CHECK(std::is_sorted(values.begin(), values.begin() + kLength));
    CHECK(std::is_sorted(values.begin() + kLength, values.end()));
  }
}

}  // namespace
}  // namespace tessera
