// How elementwise kernels split their work into runs, and transposing copies into tiles: every
// element belongs to one thread, in every plan.
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "tessera/tensor/kernels/cuda/elementwise/runs.h"
#include "tessera/tensor/kernels/cuda/elementwise/transposed.h"

namespace tessera {
namespace {

using cuda::Part;
using cuda::RunOperand;
using cuda::Runs;

RunOperand reads(std::size_t bytes, const Shape& strides, std::uintptr_t address = 0) {
  return {.address = address, .bytes = bytes, .strides = strides};
}
RunOperand writes(std::size_t bytes, const Shape& strides, std::uintptr_t address = 0) {
  return {.address = address, .bytes = bytes, .strides = strides, .in_a_row = true};
}

int run_of(const Shape& shape, const RunOperand& x, const RunOperand& y, int group = 8) {
  return cuda::plan_runs<2>(shape, {x, y}, group).run;
}

TEST_CASE("runs: as long as accesses of 16 bytes allow") {
  CHECK(run_of({100}, reads(2, {1}), writes(2, {1})) == 8);
  CHECK(run_of({100}, reads(2, {1}), writes(1, {1})) == 8);
  CHECK(run_of({100}, reads(4, {1}), writes(4, {1})) == 4);
  CHECK(run_of({100}, reads(4, {1}), writes(2, {1})) == 4);
  CHECK(run_of({100}, reads(8, {1}), writes(8, {1})) == 4);
  CHECK(run_of({100}, reads(2, {1}), writes(2, {1}), 4) == 4);
  CHECK(run_of({7}, reads(2, {1}), writes(2, {1})) == 4);
  CHECK(run_of({3}, reads(2, {1}), writes(2, {1})) == 1);
  CHECK(run_of({}, reads(2, {}), writes(2, {})) == 1);
}

TEST_CASE("runs: of what is aligned") {
  CHECK(run_of({100}, reads(2, {1}, 8), writes(2, {1})) == 4);
  CHECK(run_of({100}, reads(2, {1}, 2), writes(2, {1})) == 1);
  CHECK(run_of({100}, reads(4, {1}), writes(4, {1}, 8)) == 1);
  CHECK(run_of({100}, reads(8, {1}, 16), writes(8, {1})) == 4);
  CHECK(run_of({100}, reads(1, {1}, 4), writes(1, {1})) == 4);
  // A number is not in memory, so its address does not count.
  CHECK(run_of({100}, reads(0, {}, 3), writes(2, {1})) == 8);
}

TEST_CASE("runs: along the last dim, of rows of whole runs") {
  CHECK(run_of({5, 16}, reads(2, {0, 1}), writes(2, {16, 1})) == 8);
  CHECK(run_of({5, 12}, reads(2, {0, 1}), writes(2, {12, 1})) == 4);
  CHECK(run_of({5, 14}, reads(2, {0, 1}), writes(2, {14, 1})) == 1);
  CHECK(run_of({5, 16}, reads(4, {1, 0}), writes(2, {16, 1})) == 8);
  CHECK(run_of({5, 16}, reads(2, {20, 1}), writes(2, {16, 1})) == 4);
  CHECK(run_of({5, 16}, reads(2, {21, 1}), writes(2, {16, 1})) == 1);
  CHECK(run_of({5, 16}, reads(2, {1, 5}), writes(2, {16, 1})) == 1);
  CHECK(run_of({5, 16}, reads(2, {16, -1}), writes(2, {16, 1})) == 1);
  CHECK(run_of({5, 16}, reads(2, {16, 1}), writes(2, {1, 0})) == 1);
}

// The expected offset of an element of the operands, in row-major order.
std::int64_t offset_of(const Shape& shape, const Shape& strides, std::int64_t element) {
  std::int64_t at = 0;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    at += element % shape[d] * strides[d];
    element /= shape[d];
  }
  return at;
}

// Runs all threads of the tiles; each element must be visited once, at the right offset of both
// operands.
template <int G>
void check_visits(const Shape& shape, const Shape& x, const Shape& y, std::size_t bytes) {
  const Runs<2> runs = cuda::plan_runs<2>(shape, {reads(bytes, x), writes(bytes, y)}, G);
  std::vector<int> visits(static_cast<std::size_t>(shape.numel()));
  std::int64_t wrong = 0;
  for (std::int64_t tile = 0; tile < runs.tiles; ++tile) {
    for (int thread = 0; thread < cuda::kThreads; ++thread) {
      const Part part = cuda::part_of(runs, tile, thread);
      if (part.empty()) continue;
      cuda::Places at[2] = {};
      for (int o : {0, 1}) cuda::find_part<G>(runs, o, part, at[o]);
      for (int k = 0; k < (part.run == 1 ? cuda::kSingles : G); ++k) {
        if (!part.has(part.run == 1 ? k : part.run == 8 ? 0 : k / 4)) continue;
        const std::int64_t element = cuda::element_of(part, k);
        ++visits[static_cast<std::size_t>(element)];
        for (int o : {0, 1}) {
          const std::int64_t expected = offset_of(shape, o == 0 ? x : y, element);
          const std::int64_t found =
              part.run == 1 ? at[o][k] : at[o][k / 4] + k % 4 * runs.steps[o];
          wrong += found != expected ? 1 : 0;
        }
      }
    }
  }
  INFO(shape.str() << " in runs of " << runs.run << ", " << bytes << " bytes");
  CHECK(wrong == 0);
  CHECK(visits == std::vector<int>(visits.size(), 1));
}

TEST_CASE("runs: every element is one thread's, where it lies") {
  for (std::size_t bytes : {1, 2, 4, 8}) {
    for (std::int64_t n : {1, 3, 4, 7, 8, 9, 255, 1024, 1031, 2048, 2049, 4100, 10007}) {
      check_visits<8>({n}, {1}, {1}, bytes);
      check_visits<4>({n}, {1}, {1}, bytes);
      check_visits<8>({n}, {3}, {1}, bytes);
      check_visits<4>({n}, {0}, {2}, bytes);
    }
    check_visits<8>({}, {}, {}, bytes);
    check_visits<8>({33, 64}, {0, 1}, {64, 1}, bytes);
    check_visits<8>({33, 64}, {1, 0}, {80, 1}, bytes);
    check_visits<4>({33, 12}, {1, 33}, {12, 1}, bytes);
    check_visits<8>({7, 5, 20}, {100, 20, 1}, {20, 140, 1}, bytes);
    check_visits<8>({7, 5, 21}, {-105, 21, 1}, {21, 147, 1}, bytes);
  }
}

// ---- transposes --------------------------------------------------------------------------------

TEST_CASE("transposes: found where both sides have a row of their own") {
  CHECK(cuda::find_transposed({40, 50}, {1, 40}, {50, 1}));
  CHECK(cuda::find_transposed({3, 40, 50}, {2000, 1, 40}, {2000, 50, 1}));
  CHECK(!cuda::find_transposed({40, 50}, {50, 1}, {50, 1}));
  CHECK(!cuda::find_transposed({40, 50}, {1, 0}, {50, 1}));
  CHECK(!cuda::find_transposed({40, 50}, {2, 80}, {50, 1}));
  CHECK(!cuda::find_transposed({40, 50}, {1, 40}, {100, 2}));
  CHECK(!cuda::find_transposed({15, 50}, {1, 15}, {50, 1}));
  CHECK(!cuda::find_transposed({40, 15}, {1, 40}, {15, 1}));
  CHECK(!cuda::find_transposed({100}, {2}, {1}));
  CHECK(!cuda::find_transposed({}, {}, {}));
}

void check_tiles(const Shape& shape, const Shape& x, const Shape& y) {
  const auto found = cuda::find_transposed(shape, x, y);
  REQUIRE(found);
  std::vector<std::int64_t> sources(static_cast<std::size_t>(shape.numel()), -1);
  std::int64_t visits = 0;
  for (std::int64_t t = 0; t < found->tiles; ++t) {
    const cuda::TilePlace place = cuda::place_of_tile(*found, t);
    for (std::int64_t row = 0; row < place.rows; ++row) {
      for (std::int64_t column = 0; column < place.columns; ++column, ++visits) {
        const std::int64_t to = place.y + row * found->y_step + column;
        sources[static_cast<std::size_t>(to)] = place.x + row + column * found->x_step;
      }
    }
  }
  CHECK(visits == shape.numel());
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    const auto to = static_cast<std::size_t>(offset_of(shape, y, i));
    wrong += sources[to] != offset_of(shape, x, i) ? 1 : 0;
  }
  INFO(shape.str());
  CHECK(wrong == 0);
}

TEST_CASE("transposes: every element is in one tile") {
  check_tiles({16, 16}, {1, 16}, {16, 1});
  check_tiles({64, 128}, {1, 64}, {128, 1});
  check_tiles({65, 130}, {1, 70}, {130, 1});
  check_tiles({3, 20, 70}, {1400, 1, 20}, {1400, 70, 1});
  check_tiles({20, 3, 70}, {1, 20, 60}, {210, 70, 1});
  check_tiles({2, 18, 3, 33}, {1782, 1, 594, 18}, {1782, 99, 33, 1});
}

}  // namespace
}  // namespace tessera
