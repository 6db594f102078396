// The elements of each thread of a launch, and the offsets of elements.
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/tensor/kernels/cuda/elementwise/walk.h"

namespace tessera {
namespace {

// Runs `f` for every element as the threads of a launch would.
template <class F>
void run_launch(std::int64_t n, F f) {
  const std::int64_t threads = std::int64_t{cuda::blocks_for(n)} * cuda::kThreads;
  for (std::int64_t thread = 0; thread < threads; ++thread) cuda::share(thread, threads, n, f);
}

TEST_CASE("launch shapes: at least one block, never more than fill a GPU") {
  CHECK(cuda::blocks_for(0) == 1);
  CHECK(cuda::blocks_for(1) == 1);
  CHECK(cuda::blocks_for(256) == 1);
  CHECK(cuda::blocks_for(257) == 2);
  CHECK(cuda::blocks_for(256 * 4096) == 4096);
  CHECK(cuda::blocks_for(256 * 4096 + 1) == 4096);
  CHECK(cuda::blocks_for(std::int64_t{1} << 62) == 4096);
}

TEST_CASE("launch shapes: every element is one thread's") {
  for (std::int64_t n : {0, 1, 255, 256, 257, 5000, 256 * 4096 - 1, 256 * 4096 + 3, 2500001}) {
    std::vector<int> visits(static_cast<std::size_t>(n));
    run_launch(n, [&](std::int64_t i) { ++visits[static_cast<std::size_t>(i)]; });
    CHECK(visits == std::vector<int>(static_cast<std::size_t>(n), 1));
  }
}

// ---- division ----------------------------------------------------------------------------------

// A wrong magic number shows in quotients near multiples of the divisor.
template <class U>
bool divides(U d, U n) {
  const cuda::Divisor<U> by = cuda::make_divisor(d);
  return by.value == d && cuda::quotient(n, by) == n / d;
}

TEST_CASE("divisors: all small numbers") {
  std::int64_t wrong = 0;
  for (std::uint32_t d = 1; d <= 700; ++d) {
    const cuda::Divisor<std::uint32_t> narrow = cuda::make_divisor(d);
    const cuda::Divisor<std::uint64_t> wide = cuda::make_divisor(std::uint64_t{d});
    for (std::uint32_t n = 0; n <= 3000; ++n) {
      wrong += cuda::quotient(n, narrow) != n / d ? 1 : 0;
      wrong += cuda::quotient(std::uint64_t{n}, wide) != n / d ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

// Divisors near powers of 2 and in between; dividends near their multiples and at the end.
template <class U>
std::int64_t wrong_at_edges() {
  constexpr int kBits = std::numeric_limits<U>::digits;
  const U end = (U{1} << (kBits - 1)) - 1;  // the largest dividend
  std::int64_t wrong = 0;
  for (int power = 0; power < kBits; ++power) {
    for (int offset = -3; offset <= 3; ++offset) {
      const U d = (U{1} << power) + static_cast<U>(offset);
      if (d == 0 || d > end + 1) continue;
      for (int shift = 0; shift < kBits - 1; ++shift) {
        const U multiple = (end >> shift) / d * d;
        for (U n : {multiple - 1, multiple, multiple + 1, end >> shift, end - multiple / 3})
          wrong += n <= end && !divides(d, n) ? 1 : 0;
      }
    }
  }
  return wrong;
}

TEST_CASE("divisors: the edges of 32 and of 64 bits") {
  CHECK(wrong_at_edges<std::uint32_t>() == 0);
  CHECK(wrong_at_edges<std::uint64_t>() == 0);
}

TEST_CASE("divisors: numbers without a pattern") {
  std::uint64_t state = 1;
  std::int64_t wrong = 0;
  const auto next = [&] { return state = state * 6364136223846793005u + 1442695040888963407u; };
  for (int i = 0; i < 300000; ++i) {
    const std::uint64_t a = next() >> 1, b = (next() >> 1) >> (next() >> 58);
    const auto n = static_cast<std::uint32_t>(a >> 32), d = static_cast<std::uint32_t>(b >> 32) + 1;
    wrong += divides(b + 1, a) ? 0 : 1;
    wrong += divides(d, n) ? 0 : 1;
    wrong += divides(d, n / d * d) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

// ---- walks -------------------------------------------------------------------------------------

TEST_CASE("walks: offsets of strided elements in row-major order") {
  const Shape shape = {3, 1, 4, 5};
  const auto walk = cuda::make_walk<3>(shape, {Shape{1, 7, 15, 3}, {40, 0, 0, 2}, {-20, 1, 5, -1}});
  CHECK(walk.narrow);
  std::int64_t i = 0;
  for (std::int64_t a = 0; a < 3; ++a) {
    for (std::int64_t b = 0; b < 4; ++b) {
      for (std::int64_t c = 0; c < 5; ++c, ++i) {
        CHECK(cuda::offset_at(walk, 0, i) == a + 15 * b + 3 * c);
        CHECK(cuda::offset_at(walk, 1, i) == 40 * a + 2 * c);
        CHECK(cuda::offset_at(walk, 2, i) == -20 * a + 5 * b - c);
      }
    }
  }
  const std::int64_t several[3] = {59, 0, 17};
  std::int64_t at[3];
  cuda::find_offsets(walk, 0, several, at);
  CHECK((at[0] == 2 + 45 + 12 && at[1] == 0 && at[2] == 45 + 6));
}

TEST_CASE("walks: dims that all operands walk as one are merged") {
  CHECK(cuda::make_walk<2>({4, 5, 6}, {Shape{30, 6, 1}, {30, 6, 1}}).ndim == 1);
  CHECK(cuda::make_walk<2>({4, 5, 6}, {Shape{30, 6, 1}, {0, 0, 1}}).ndim == 2);
  CHECK(cuda::make_walk<2>({4, 5, 6}, {Shape{30, 6, 1}, {6, 0, 1}}).ndim == 3);
  const auto none = cuda::make_walk<1>({}, {Shape{}});
  CHECK(none.ndim == 0);
  CHECK(cuda::offset_at(none, 0, 0) == 0);
}

TEST_CASE("walks: beyond what 32 bits count") {
  const std::int64_t wide = std::int64_t{1} << 32;
  const auto walk = cuda::make_walk<2>({4, wide}, {Shape{std::int64_t{1} << 40, 3}, {0, 1}});
  CHECK(!walk.narrow);
  const std::int64_t far = 2 * wide + 5;
  CHECK(cuda::offset_at(walk, 0, far) == (std::int64_t{2} << 40) + 15);
  CHECK(cuda::offset_at(walk, 1, far) == 5);
  // The largest shape for 32-bit arithmetic, and the next one.
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  CHECK(cuda::make_walk<1>({most}, {Shape{2}}).narrow);
  CHECK(cuda::offset_at(cuda::make_walk<1>({most}, {Shape{2}}), 0, most - 1) == 2 * (most - 1));
  CHECK(!cuda::make_walk<1>({most + 1}, {Shape{2}}).narrow);
  CHECK(cuda::offset_at(cuda::make_walk<1>({2, most / 2}, {Shape{1, 2}}), 0, most - 2) ==
        1 + 2 * (most / 2 - 1));
}

}  // namespace
}  // namespace tessera
