// Which ranks share memory, and exchanges between those that do. Each rank is a thread.
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tessera/distributed/transports/shared_memory.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/distributed/store/wrapped_store.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr std::chrono::milliseconds kLong = std::chrono::seconds(60);

// Runs `body` as every rank of a world, of which nodes[r] is the node of rank r, and rethrows what
// one of them throws.
void run(const std::vector<std::string>& nodes,
         const std::function<void(SharedMemory&, int rank)>& body) {
  const auto store = std::make_shared<MemoryStore>();
  const auto size = static_cast<int>(nodes.size());
  std::vector<std::exception_ptr> errors(nodes.size());
  std::vector<std::thread> threads;
  std::atomic<int> done = 0;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      try {
        SharedMemory memory({.group = "g",
                             .rank = rank,
                             .size = size,
                             .store = store,
                             .node = nodes[r],
                             .timeout = kLong});
        body(memory, rank);
      } catch (...) {
        errors[r] = std::current_exception();
      }
      ++done;
      // A rank that leaves earlier than the others is what group_failure_test is for.
      while (done < size) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

SharedMemory::Limits within(std::chrono::milliseconds time) {
  const Clock::time_point deadline = Clock::now() + time;
  return {.deadline = deadline,
          .is_over = [deadline](std::span<const int>) { return Clock::now() >= deadline; }};
}

Bytes message_between(int from, int to, std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] =
        static_cast<std::byte>(static_cast<std::size_t>(from * 7 + to) * 13 + i * 3 + i / 255);
  return bytes;
}

Transfer transfer(int peer, Bytes& bytes, std::uint64_t number) {
  return {.peer = peer,
          .data = bytes.data(),
          .bytes = bytes.size(),
          .number = number,
          .terms = bytes.size()};
}

}  // namespace

TEST_CASE("every rank exchanges with every other, in worlds of 1 to 5", "[shared]") {
  const int size = GENERATE(1, 2, 3, 4, 5);
  const bool all_take_part = GENERATE(true, false);
  CAPTURE(size, all_take_part);
  std::atomic<int> wrong = 0;
  run(std::vector<std::string>(static_cast<std::size_t>(size)),
      [&](SharedMemory& memory, int rank) {
        std::uint64_t number = 0;
        for (std::size_t count : {0UL, 1UL, 4UL, 32767UL, 32768UL, 32769UL, 700001UL, 5UL}) {
          std::vector<Bytes> out, in;
          for (int peer = 0; peer < size; ++peer) {
            out.push_back(message_between(rank, peer, count));
            in.emplace_back(count);
          }
          ExchangePlan plan;
          ++number;
          for (int peer = 0; peer < size; ++peer) {
            const auto p = static_cast<std::size_t>(peer);
            if (peer == rank) continue;
            plan.sends.push_back(transfer(peer, out[p], number));
            plan.receives.push_back(transfer(peer, in[p], number));
          }
          wrong += !memory.exchange(plan, 3, all_take_part, within(kLong)).empty();
          for (int peer = 0; peer < size; ++peer) {
            if (peer != rank)
              wrong += in[static_cast<std::size_t>(peer)] != message_between(peer, rank, count);
          }
        }
      });
  CHECK(wrong == 0);
}

TEST_CASE("messages of other groups, numbers and terms do not meet", "[shared]") {
  run({"", ""}, [](SharedMemory& memory, int rank) {
    if (rank == 0) {
      Bytes out = message_between(0, 1, 10);
      ExchangePlan plan;
      plan.sends = {transfer(1, out, 1)};
      if (!memory.exchange(plan, 5, false, within(kLong)).empty()) throw StateError("not sent");
      return;
    }
    for (int i = 0; i < 4; ++i) {
      Bytes in(10);
      ExchangePlan plan;
      plan.receives = {transfer(0, in, i == 0 ? 2 : 1)};
      if (i == 1) plan.receives[0].terms = 11;
      const std::uint64_t group = i == 2 ? 6 : 5;
      const auto missing =
          memory.exchange(plan, group, true, within(i < 3 ? std::chrono::milliseconds(3) : kLong));
      if (i < 3 && missing != std::vector{0}) throw StateError("met");
      if (i == 3 && (!missing.empty() || in != message_between(0, 1, 10)))
        throw StateError("not received");
    }
  });
  SUCCEED();
}

TEST_CASE("threads of two ranks that go through the same exchanges in other orders", "[shared]") {
  constexpr std::uint64_t kExchanges = 80;  // more than a channel has slots or entries
  const bool both_ways = GENERATE(true, false);
  std::atomic<std::uint64_t> waiting = 0;
  run({"", ""}, [both_ways, &waiting](SharedMemory& memory, int rank) {
    const auto one = [&memory, rank, both_ways, &waiting](std::uint64_t number) {
      const int place = static_cast<int>(number);
      Bytes out = message_between(rank, place, 100001), in(out.size());
      ExchangePlan plan;
      if (both_ways || rank == 1) plan.sends = {transfer(1 - rank, out, number)};
      if (both_ways || rank == 0) plan.receives = {transfer(1 - rank, in, number)};
      SharedMemory::Limits limits = within(kLong);
      if (rank == 1) {
        limits.is_over = [&waiting, over = limits.is_over](std::span<const int> missing) {
          ++waiting;
          return over(missing);
        };
      }
      const bool is_whole = memory.exchange(plan, 0, both_ways, limits).empty();
      if (!is_whole || (!plan.receives.empty() && in != message_between(1 - rank, place, 100001)))
        throw StateError("wrong");
    };
    if (rank == 0) {                              // one after another, the last one first
      while (!both_ways && waiting < kExchanges)  // some senders do not even find room to offer
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (std::uint64_t number = kExchanges; number > 0; --number) one(number);
      return;
    }
    std::vector<std::thread> threads;
    for (std::uint64_t number = 1; number <= kExchanges; ++number)
      threads.emplace_back([&one, number] { one(number); });
    for (std::thread& thread : threads) thread.join();
  });
  SUCCEED();
}

TEST_CASE("an exchange that waits for space or a peer ends when it is told to", "[shared]") {
  const bool expected = GENERATE(true, false);
  run({"", ""}, [&](SharedMemory& memory, int rank) {
    if (rank == 1) {  // sends a little, so that rank 0 counts on it, and takes nothing more
      Bytes out(1), in(1);
      ExchangePlan plan;
      if (expected) plan.sends = {transfer(0, out, 1)};
      plan.receives = {transfer(0, in, 7)};
      memory.exchange(plan, 0, false, within(std::chrono::milliseconds(50)));
      return;
    }
    Bytes out(5'000'000), in(1);
    ExchangePlan plan;
    plan.sends = {transfer(1, out, 1)};
    plan.sends[0].terms = 1;
    plan.receives = {transfer(1, in, 1)};
    std::atomic<bool> aborted = false;
    std::atomic<int> asked = 0;
    std::thread waker([&] {
      while (asked == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      aborted = true;
      memory.wake();
    });
    const auto missing = memory.exchange(
        plan, 0, true,
        {.deadline = Clock::now() + kLong, .is_over = [&](std::span<const int> ranks) {
           ++asked;
           if (ranks.size() != 1 || ranks[0] != 1) throw StateError("who is missing?");
           return aborted.load();
         }});
    waker.join();
    if (missing != std::vector{1}) throw StateError("it should have waited");
  });
  SUCCEED();
}

TEST_CASE("what a peer has sent before it left is received", "[shared]") {
  const auto wait_for = [](const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  std::atomic<bool> asked = false, sent = false;
  run({"", ""}, [&](SharedMemory& memory, int rank) {
    Bytes bytes = message_between(0, 1, 101);
    ExchangePlan plan;
    SharedMemory::Limits limits = within(kLong);
    if (rank == 0) {
      plan.sends = {transfer(1, bytes, 1)};
      limits.is_over = [&](std::span<const int>) {
        sent = true;  // else it would not ask
        return false;
      };
      wait_for(asked);
      if (!memory.exchange(plan, 0, true, limits).empty()) throw StateError("not sent");
      return;
    }
    Bytes in(bytes.size());
    plan.receives = {transfer(0, in, 1)};
    limits.is_over = [&](std::span<const int>) {
      asked = true;  // nothing has come yet
      wait_for(sent);
      return true;
    };
    if (!memory.exchange(plan, 0, true, limits).empty() || in != bytes)
      throw StateError("not received");
  });
  SUCCEED();
}

TEST_CASE("ranks share memory with those of their node", "[shared]") {
  run({"x", "y", "x", "x", "y"}, [](SharedMemory& memory, int rank) {
    const bool is_y = rank == 1 || rank == 4;
    for (int peer = 0; peer < 5; ++peer) {
      const bool peer_is_y = peer == 1 || peer == 4;
      if (memory.reaches(peer) != (peer != rank && is_y == peer_is_y)) throw StateError("wrong");
    }
  });
  run({"x", "y"}, [](SharedMemory& memory, int rank) {
    if (memory.reaches(1 - rank)) throw StateError("wrong");
    Bytes out(3);
    ExchangePlan plan;
    plan.sends = {transfer(1 - rank, out, 1)};  // by TCP: nothing to do here
    if (!memory.exchange(plan, 0, true, within(kLong)).empty()) throw StateError("wrong");
    memory.wake();
  });
  SUCCEED();
}

TEST_CASE("a rank without memory to share uses TCP, and the others are told", "[shared]") {
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {.rlim_cur = 65536, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::atomic<int> reached = 0;
  run({"", "", ""}, [&](SharedMemory& memory, int rank) {
    for (int peer = 0; peer < 3; ++peer) reached += peer != rank && memory.reaches(peer);
  });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(reached == 0);
}

TEST_CASE("two ranks share memory only if each has mapped the other's", "[shared]") {
  // Rank 1's address leads nowhere.
  const auto store = std::make_shared<WrappedStore>(
      std::make_shared<MemoryStore>(),
      [](Store& all, const std::string& key, const std::string& value) {
        return all.set(key, key == "memory-1" ? "1 999999 2 4096 nothing" : value);
      });
  std::vector<std::string> reached(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const SharedMemory memory(
          {.group = "g", .rank = rank, .size = 3, .store = store, .timeout = kLong});
      for (int peer = 0; peer < 3; ++peer)
        reached[static_cast<std::size_t>(rank)] += peer != rank && memory.reaches(peer) ? "1" : "0";
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(reached == std::vector<std::string>{"001", "000", "100"});
}

TEST_CASE("ranks that do not answer are named", "[shared]") {
  CHECK_THROWS_WITH(SharedMemory({.group = "lonely",
                                  .rank = 1,
                                  .size = 3,
                                  .store = std::make_shared<MemoryStore>(),
                                  .timeout = std::chrono::milliseconds(5)}),
                    Contains("[connect]") &&
                        Contains("group \"lonely\": ranks 0, 2 did not say within 0.005 s whether "
                                 "memory can be shared"));
}

TEST_CASE("a process with other process numbers does not share memory", "[shared]") {
  REQUIRE_FALSE(host_identity().empty());
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(2);
    const pid_t inner = fork();  // the first process with the new numbers; /proc shows the old ones
    if (inner == 0) _exit(host_identity().empty() ? 0 : 1);
    int status = 0;
    waitpid(inner, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2)
    return tessera::testing::skip("this machine does not allow namespaces");
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace tessera::distributed
