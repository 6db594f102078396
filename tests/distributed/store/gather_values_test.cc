// Values that ranks leave in a store and read all together; each rank is a thread.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tessera/distributed/store/gather_values.h"

namespace tessera::distributed {
namespace {

using std::chrono::milliseconds;

// Counts the requests of all ranks.
class CountingStore final : public Store {
 public:
  bool set(const std::string& key, const std::string& value) override {
    ++requests;
    return store_.set(key, value);
  }
  std::optional<std::string> get(const std::string& key) override {
    ++requests;
    return store_.get(key);
  }
  std::vector<std::string> wait(const std::vector<std::string>& keys,
                                milliseconds timeout) override {
    ++requests;
    return store_.wait(keys, timeout);
  }
  std::atomic<int> requests = 0;

 private:
  MemoryStore store_;
};

std::string value_of(int rank) { return rank == 2 ? "" : "value " + std::to_string(rank * rank); }

// What each of `ranks` gets.
std::vector<GatheredValues> gather_all(Store& store, const std::string& name,
                                       const std::vector<int>& ranks) {
  std::vector<GatheredValues> results(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      results[i] = gather_values(store, {.name = name,
                                         .rank = ranks[i],
                                         .ranks = ranks,
                                         .value = value_of(ranks[i]),
                                         .timeout = milliseconds(60000)});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace

TEST_CASE("every rank gets the values of all, in their order", "[gather]") {
  const int size = GENERATE(1, 2, 3, 5);
  CountingStore store;
  std::vector<int> ranks;
  std::vector<std::string> expected;
  for (int i = 0; i < size; ++i) {
    ranks.push_back(2 * i);
    expected.push_back(value_of(2 * i));
  }
  for (const char* name : {"first", "second"}) {
    for (const GatheredValues& got : gather_all(store, name, ranks)) {
      CHECK(got.values == expected);
      CHECK(got.missing.empty());
      CHECK_FALSE(got.is_taken);
    }
  }
}

TEST_CASE("other ranks may gather under the same name", "[gather]") {
  MemoryStore store;
  CHECK(gather_all(store, "host", {0, 3}).back().values == std::vector{value_of(0), value_of(3)});
  CHECK(gather_all(store, "host", {1, 4}).back().values == std::vector{value_of(1), value_of(4)});
}

TEST_CASE("requests are proportional to the number of ranks", "[gather]") {
  const int size = GENERATE(4, 32);
  CountingStore store;
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  gather_all(store, "x", ranks);
  CHECK(store.requests == 3 * size + size + 1);
}

TEST_CASE("ranks that do not come are named", "[gather]") {
  MemoryStore store;
  const auto missing = [&store](int rank) {
    return gather_values(
               store,
               {.name = "x", .rank = rank, .ranks = {0, 1, 3, 7}, .timeout = milliseconds(5)})
        .missing;
  };
  CHECK(missing(3) == std::vector{0, 1, 7});
  CHECK(missing(1) == std::vector{0, 7});
  CHECK(missing(0) == std::vector{7});
}

TEST_CASE("if only the list is missing, the rank that makes it is named", "[gather]") {
  MemoryStore store;
  store.set("x-0", "");
  const GatheredValues got = gather_values(
      store, {.name = "x", .rank = 1, .ranks = {0, 1}, .value = "a", .timeout = milliseconds(5)});
  CHECK(got.missing == std::vector{0});
  CHECK(got.values.empty());
}

TEST_CASE("a second process with the number of a rank is told so", "[gather]") {
  MemoryStore store;
  const GatherRequest request{
      .name = "x", .rank = 0, .ranks = {0}, .value = "a", .timeout = milliseconds(60000)};
  CHECK_FALSE(gather_values(store, request).is_taken);
  CHECK(gather_values(store, request).is_taken);
}

TEST_CASE("a check ends the wait", "[gather]") {
  MemoryStore store;
  const int rank = GENERATE(0, 1);
  int checks = 0;
  CHECK_THROWS_WITH(gather_values(store, {.name = "x",
                                          .rank = rank,
                                          .ranks = {0, 1},
                                          .value = "a",
                                          .timeout = milliseconds(60000),
                                          .check =
                                              [&checks] {
                                                if (++checks == 2)
                                                  throw std::runtime_error("rank 1 is gone");
                                              }}),
                    "rank 1 is gone");
  CHECK(checks == 2);
}

// A rank that has the values may go before another one has looked again.
TEST_CASE("a check that fails once all have come does not matter", "[gather]") {
  MemoryStore store;
  const GatheredValues got = gather_values(store, {.name = "x",
                                                   .rank = 1,
                                                   .ranks = {0, 1},
                                                   .value = "a",
                                                   .timeout = milliseconds(60000),
                                                   .check = [&store] {
                                                     store.set("x-from-0", "b\na\n");
                                                     throw std::runtime_error("rank 0 has left");
                                                   }});
  CHECK(got.values == std::vector<std::string>{"b", "a"});
}

TEST_CASE("a check does not prolong the wait", "[gather]") {
  MemoryStore store;
  CHECK(gather_values(
            store,
            {.name = "x", .rank = 1, .ranks = {0, 1}, .timeout = milliseconds(150), .check = [] {}})
            .missing == std::vector{0});
}

}  // namespace tessera::distributed
