// Free ranges of addresses, and the large pieces of a pool that are made of them.

#include "tessera/tensor/memory/free_ranges.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/tensor/memory/stream_pool.h"

namespace tessera {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uint64_t kAlways = std::numeric_limits<std::uint64_t>::max();

char* at(std::size_t address) { return reinterpret_cast<char*>(address); }

// (begin, bytes) of all ranges, by address; empties them.
std::vector<std::pair<std::size_t, std::size_t>> all_of(FreeRanges& ranges) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  ranges.remove(std::numeric_limits<std::size_t>::max(), kAlways, 1,
                [&](char* begin, std::size_t bytes) {
                  found.emplace_back(reinterpret_cast<std::size_t>(begin), bytes);
                });
  std::sort(found.begin(), found.end());
  return found;
}

TEST_CASE("free ranges: adjacent ones become one, whichever comes last") {
  const std::vector<std::size_t> order[] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                            {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const std::vector<std::size_t>& each : order) {
    FreeRanges ranges;
    ranges.add({.begin = at(1000), .bytes = 99});  // one byte short of the next
    for (const std::size_t i : each) ranges.add({.begin = at(1100 + 10 * i), .bytes = 10});
    ranges.add({.begin = at(2000), .bytes = 0});
    CHECK(all_of(ranges) ==
          std::vector<std::pair<std::size_t, std::size_t>>{{1000, 99}, {1100, 30}});
  }
}

TEST_CASE("free ranges: the end of the smallest that is large enough") {
  FreeRanges ranges;
  CHECK(ranges.take(1) == nullptr);
  ranges.add({.begin = at(1000), .bytes = 50});
  ranges.add({.begin = at(2000), .bytes = 20});
  ranges.add({.begin = at(3000), .bytes = 20});
  CHECK(ranges.take(51) == nullptr);
  CHECK(ranges.take(15) == at(2005));
  CHECK(ranges.take(20) == at(3000));
  CHECK(ranges.take(6) == at(1044));
  CHECK(ranges.take(5) == at(2000));
  CHECK(ranges.remove_at(at(1001)).bytes == 0);
  CHECK(ranges.remove_at(at(1000)).bytes == 44);
  CHECK(ranges.remove_at(at(1000)).bytes == 0);
  CHECK(all_of(ranges).empty());
}

TEST_CASE(
    "free ranges: removed largest first, of the last no more than needed, and none that is in "
    "use") {
  FreeRanges ranges;
  ranges.add({.begin = at(1003), .bytes = 50, .returned_at = 7});
  ranges.add({.begin = at(2000), .bytes = 90, .returned_at = 8});
  ranges.add({.begin = at(3000), .bytes = 40, .returned_at = 2});
  ranges.add({.begin = at(3040), .bytes = 2, .returned_at = 7});  // joined: as young as the younger
  ranges.add({.begin = at(5000), .bytes = 30, .returned_at = 9});
  ranges.add({.begin = at(4990), .bytes = 10, .returned_at = 1});  // the same from below
  std::vector<std::pair<std::size_t, std::size_t>> removed;
  const auto remove = [&](std::size_t bytes, std::uint64_t done) {
    removed.clear();
    return ranges.remove(bytes, done, 16, [&](char* begin, std::size_t size) {
      removed.emplace_back(reinterpret_cast<std::size_t>(begin), size);
    });
  };
  using Removed = std::vector<std::pair<std::size_t, std::size_t>>;
  CHECK(remove(1, 6) == 0);
  CHECK(remove(0, 7) == 0);
  CHECK(remove(10, 7) == 21);  // up to 1024, a multiple of 16
  CHECK(removed == Removed{{1003, 21}});
  CHECK(remove(60, 7) == 71);
  CHECK(removed == Removed{{3000, 42}, {1024, 29}});
  CHECK(remove(1000, 7) == 0);
  CHECK(remove(17, 8) == 32);   // from 2000 to 2032, a multiple of 16
  CHECK(remove(1000, 7) == 0);  // the rest is as young as the whole
  CHECK(remove(1000, 8) == 58);
  CHECK(remove(1000, 9) == 40);
}

TEST_CASE("free ranges: move to others, where they may be used at once") {
  FreeRanges from, to;
  from.add({.begin = at(1000), .bytes = 10, .returned_at = 5});
  from.add({.begin = at(1020), .bytes = 10, .returned_at = 5});
  to.add({.begin = at(1010), .bytes = 10, .returned_at = 0});
  from.move_to(to);
  CHECK(all_of(from).empty());
  CHECK(to.remove(30, 0, 1, [](char*, std::size_t) {}) == 30);
}

// Against one flag per byte.
TEST_CASE("free ranges: random requests") {
  constexpr std::size_t kBytes = 400, kFirst = 4096;
  std::mt19937 random(3);
  const auto below = [&](std::size_t n) { return random() % n; };
  FreeRanges ranges;
  std::vector<bool> free(kBytes, false);
  std::vector<std::pair<std::size_t, std::size_t>> taken = {{0, kBytes}};
  // Length of the longest run of free bytes, and of the shortest that holds `bytes`.
  const auto runs = [&](std::size_t bytes) {
    std::size_t run = 0, longest = 0, shortest = 0;
    for (std::size_t i = 0; i <= kBytes; ++i) {
      if (i < kBytes && free[i]) {
        ++run;
        continue;
      }
      longest = std::max(longest, run);
      if (run >= bytes && (shortest == 0 || run < shortest)) shortest = run;
      run = 0;
    }
    return std::pair{longest, shortest};
  };
  for (int step = 0; step < 5000; ++step) {
    if (!taken.empty() && below(2) == 0) {
      const auto which = taken.begin() + static_cast<std::ptrdiff_t>(below(taken.size()));
      const auto [begin, bytes] = *which;
      // In two parts, the second first.
      const std::size_t first = below(bytes + 1);
      ranges.add({.begin = at(kFirst + begin + first), .bytes = bytes - first});
      ranges.add({.begin = at(kFirst + begin), .bytes = first});
      std::fill_n(free.begin() + static_cast<std::ptrdiff_t>(begin), bytes, true);
      taken.erase(which);
    }
    const std::size_t bytes = 1 + below(60);
    const auto [longest, shortest] = runs(bytes);
    void* const found = ranges.take(bytes);
    REQUIRE((found != nullptr) == (longest >= bytes));
    if (found == nullptr) continue;
    const std::size_t begin = static_cast<std::size_t>(static_cast<char*>(found) - at(kFirst));
    for (std::size_t i = begin; i < begin + bytes; ++i) {
      REQUIRE(free.at(i));
      free[i] = false;
    }
    const auto [left, unused] = runs(1);
    REQUIRE((shortest == longest || left == longest));  // the smallest that fits was used
    taken.emplace_back(begin, bytes);
  }
}

class Pieces {
 public:
  explicit Pieces(std::shared_ptr<StreamPool> pool) : pool_(std::move(pool)) {}
  ~Pieces() { give_back(); }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  char* take(std::size_t bytes) {
    all_.push_back(pool_->take(size_class_of(bytes)));
    REQUIRE(all_.back().data != nullptr);
    return static_cast<char*>(all_.back().data);
  }
  void give_back() {
    for (const StreamPool::Piece& piece : all_) pool_->give_back(piece);
    all_.clear();
  }

 private:
  std::shared_ptr<StreamPool> pool_;
  std::vector<StreamPool::Piece> all_;
};

TEST_CASE("pool: large pieces are split for smaller ones, and joined for larger ones") {
  release_kept_cpu_memory();
  const auto pool = std::make_shared<StreamPool>();
  Pieces pieces(pool);
  char* const whole = pieces.take(8 * kMiB);
  const std::size_t held = cpu_memory().from_system;
  for (int round = 0; round < 3; ++round) {
    pieces.give_back();
    std::vector<char*> parts;
    for (const std::size_t bytes : {4 * kMiB, 3 * kMiB, kMiB}) {
      parts.push_back(pieces.take(bytes));
      CHECK(parts.back() >= whole);
      CHECK(parts.back() + bytes <= whole + 8 * kMiB);
      std::memset(parts.back(), static_cast<int>(parts.size()), bytes);
    }
    CHECK(parts[0][0] == 1);
    CHECK(parts[0][4 * kMiB - 1] == 1);
    CHECK(parts[1][0] == 2);
    CHECK(parts[1][3 * kMiB - 1] == 2);
    CHECK(cpu_memory().kept == 0);
    pieces.give_back();
    CHECK(cpu_memory().kept == 8 * kMiB);
    CHECK(pieces.take(8 * kMiB) == whole);
    CHECK(cpu_memory().from_system == held);
  }
}

TEST_CASE("pool: the piece that was returned last is used first while classes match") {
  const auto pool = std::make_shared<StreamPool>();
  const int large = size_class_of(2 * kMiB);
  const StreamPool::Piece first = pool->take(large), second = pool->take(large);
  pool->give_back(second);
  pool->give_back(first);
  const StreamPool::Piece again = pool->take(large);
  CHECK(again.data == first.data);
  pool->give_back(again);
}

// What a step returns, the next one uses: the pool holds what was in use at one time, and a bit.
TEST_CASE("pool: steps of other sizes need no other memory") {
  release_kept_cpu_memory();
  const std::size_t before = cpu_memory().from_system;
  const auto pool = std::make_shared<StreamPool>();
  Pieces pieces(pool);
  for (const std::size_t bytes : {4 * kMiB, 5 * kMiB, 7 * kMiB, 3 * kMiB, 13 * kMiB, 2 * kMiB}) {
    for (std::size_t taken = 0; taken + bytes <= 60 * kMiB; taken += bytes) pieces.take(bytes);
    pieces.give_back();
  }
  CHECK(cpu_memory().from_system <= before + 75 * kMiB);
}

TEST_CASE("pool: what is free at the edge is used when more is mapped") {
  release_kept_cpu_memory();
  const std::size_t before = cpu_memory().from_system;
  const auto pool = std::make_shared<StreamPool>();
  Pieces pieces(pool), larger(pool);
  char* const edge = pieces.take(4 * kMiB);
  pieces.give_back();
  char* const more = larger.take(6 * kMiB);
  // Unless something else lies just below.
  const bool below = more + 2 * kMiB == edge;
  CHECK(cpu_memory().from_system == before + (below ? 6 : 10) * kMiB);
  std::memset(more, 1, 6 * kMiB);
}

TEST_CASE("pool: ranges that pending work may use stay when the pool is emptied") {
  release_kept_cpu_memory();
  const auto pool = std::make_shared<StreamPool>();
  {
    Pieces pieces(pool);
    pieces.take(8 * kMiB);
    pieces.give_back();
    pieces.take(3 * kMiB);  // of the 8
    pool->issued = 2;
    pieces.give_back();
  }
  CHECK(pool->evict(20 * kMiB) == 5 * kMiB);
  pool->completed = 2;
  CHECK(pool->evict(20 * kMiB) == 3 * kMiB);
}

// One that its stream may still use is joined with others, split and taken by the same stream; it is not unmapped.
TEST_CASE("pool: joined ranges that pending work may use stay too") {
  release_kept_cpu_memory();
  const std::size_t before = cpu_memory().from_system;
  const auto held = [&] { return cpu_memory().from_system - before; };
  const auto pool = std::make_shared<StreamPool>();
  Pieces pieces(pool);
  pieces.take(8 * kMiB);
  pool->issued = 2;
  pieces.give_back();
  pieces.take(3 * kMiB);  // of the 8
  CHECK(held() == 8 * kMiB);
  CHECK(cpu_memory().kept == 5 * kMiB);
  CHECK(pool->evict(20 * kMiB) == 0);
  pool->issued = 3;
  pieces.give_back();
  pieces.take(6 * kMiB);  // of the 3 and the 5, joined again
  CHECK(held() == 8 * kMiB);
  pool->completed = 2;
  CHECK(pool->evict(20 * kMiB) == 0);
  pool->completed = 3;
  CHECK(pool->evict(kMiB) >= kMiB);  // up to a multiple of a huge page
  pool->evict(20 * kMiB);
  CHECK(held() == 6 * kMiB);
  CHECK(cpu_memory().kept == 0);
  pieces.give_back();
  CHECK(pool->evict(20 * kMiB) == 6 * kMiB);
  CHECK(held() == 0);
}

// Something else lies just below: the new mapping is elsewhere, and what was free at the edge stays free.
TEST_CASE("pool: no room below the edge") {
  release_kept_cpu_memory();
  const std::size_t before = cpu_memory().from_system;
  const auto pool = std::make_shared<StreamPool>();
  Pieces pieces(pool), larger(pool);
  char* const edge = pieces.take(4 * kMiB);
  pieces.give_back();
  // A page of ours, or one that was there already.
  void* const page =
      mmap(edge - 4096, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
           /*fd=*/-1, /*offset=*/0);
  larger.take(6 * kMiB);
  CHECK(cpu_memory().from_system == before + 10 * kMiB);
  CHECK(cpu_memory().kept == 4 * kMiB);
  CHECK(pieces.take(3 * kMiB) == edge + kMiB);
  CHECK(cpu_memory().kept == kMiB);
  if (page != MAP_FAILED) munmap(page, 4096);
}

TEST_CASE("pool: a mapping that the system refuses leaves the counts as they were") {
  release_kept_cpu_memory();
  const std::size_t before = cpu_memory().from_system;
  const auto pool = std::make_shared<StreamPool>();
  Pieces pieces(pool);
  pieces.take(4 * kMiB);
  const int largest = kSizeClasses - 1;
  for (int round = 0; round < 2; ++round) {
    CHECK(pool->take(largest).data == nullptr);
    CHECK(cpu_memory().from_system == before + 4 * kMiB);
    CHECK(cpu_memory().kept == 0);
  }
}

TEST_CASE("pool: ranges of a stream that has ended are for everyone") {
  release_kept_cpu_memory();
  const auto ended = std::make_shared<StreamPool>(), other = std::make_shared<StreamPool>();
  Pieces old(ended), pieces(other);
  char* const whole = old.take(8 * kMiB);
  old.give_back();
  old.take(3 * kMiB);
  ended->retire();
  const std::size_t held = cpu_memory().from_system;
  CHECK(pieces.take(5 * kMiB) == whole);
  CHECK(cpu_memory().from_system == held);
  old.give_back();
  CHECK(pieces.take(3 * kMiB) == whole + 5 * kMiB);
  CHECK(cpu_memory().from_system == held);
}

TEST_CASE("pool: threads take and return large pieces of one pool at once") {
  const auto pool = std::make_shared<StreamPool>();
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<std::pair<StreamPool::Piece, std::size_t>> held;
      const auto mark = static_cast<char>(t + 1);
      const auto give_back = [&] {
        const auto [piece, bytes] = held.front();
        const char* const data = static_cast<const char*>(piece.data);
        if (data[0] != mark || data[bytes - 1] != mark) ++errors;
        pool->give_back(piece);
        held.erase(held.begin());
      };
      for (int i = 0; i < 300; ++i) {
        const std::size_t bytes = kMiB * (1 + random() % 9);
        held.emplace_back(pool->take(size_class_of(bytes)), bytes);
        char* const data = static_cast<char*>(held.back().first.data);
        data[0] = data[bytes - 1] = mark;
        if (held.size() > random() % 5) give_back();
        if (i % 100 == 0) release_kept_cpu_memory();
      }
      while (!held.empty()) give_back();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(errors == 0);
}

}  // namespace
}  // namespace tessera
