#include "tessera/tensor/kernels/threads.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tessera/tensor/rank_context.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

using Body = std::function<void(std::int64_t, int)>;

void run(std::int64_t pieces, int threads, const Body& body) {
  run_pieces(
      pieces, threads,
      [](const void* context, std::int64_t piece, int thread) {
        (*static_cast<const Body*>(context))(piece, thread);
      },
      &body);
}

// A rank with this many threads for each kernel.
class Rank {
 public:
  explicit Rank(int threads) : scope_(std::make_shared<RankContext>(0, 1, threads)) {}

 private:
  RankScope scope_;
};

constexpr int kAll = 1 << 20;

// Waits until `flag` is at least `value`; false after half a minute.
bool reaches(const std::atomic<int>& flag, int value) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (flag < value) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// Two pieces that wait for each other: two threads must run them.
bool two_threads_take_part() {
  std::atomic<int> arrived = 0, met = 0;
  run(2, 2, [&](std::int64_t, int) {
    ++arrived;
    if (reaches(arrived, 2)) ++met;
  });
  return met == 2;
}

std::size_t threads_of_process() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

TEST_CASE("kernel threads: each piece runs once, and a thread number belongs to one thread") {
  for (const int threads : {1, 2, 3, 5}) {
    const Rank rank(threads);
    for (const std::int64_t pieces : {0, 1, 2, 3, 7, 64, 1001}) {
      std::vector<int> runs(static_cast<std::size_t>(pieces));
      std::vector<std::set<std::thread::id>> ids(static_cast<std::size_t>(threads));
      std::mutex mutex;
      bool numbers_are_valid = true;
      run(pieces, kAll, [&](std::int64_t piece, int thread) {
        ++runs[static_cast<std::size_t>(piece)];
        const std::lock_guard lock(mutex);
        if (thread < 0 || thread >= threads) {
          numbers_are_valid = false;
        } else {
          ids[static_cast<std::size_t>(thread)].insert(std::this_thread::get_id());
        }
      });
      INFO(threads << " threads, " << pieces << " pieces");
      CHECK(runs == std::vector<int>(static_cast<std::size_t>(pieces), 1));
      CHECK(numbers_are_valid);
      for (std::size_t t = 0; t < ids.size(); ++t) CHECK(ids[t].size() <= 1);
      if (!ids[0].empty()) CHECK(*ids[0].begin() == std::this_thread::get_id());
    }
  }
}

TEST_CASE("kernel threads: at most as many as the rank has, and as the caller wants") {
  const auto most_used = [](int threads) {
    int most = 0;
    std::mutex mutex;
    for (int i = 0; i < 20; ++i) {
      run(64, threads, [&](std::int64_t, int thread) {
        const std::lock_guard lock(mutex);
        most = std::max(most, thread + 1);
      });
    }
    return most;
  };
  const Rank rank(3);
  CHECK(two_threads_take_part());
  CHECK(most_used(1) == 1);
  CHECK(most_used(2) <= 2);
  CHECK(most_used(kAll) <= 3);
  const Rank alone(1);
  CHECK(most_used(kAll) == 1);
}

TEST_CASE("kernel threads: what the pieces wrote is visible, call after call") {
  const Rank rank(3);
  std::vector<std::int64_t> values(1000);
  for (std::int64_t call = 1; call <= 2000; ++call) {
    run(10, kAll, [&](std::int64_t piece, int) {
      for (std::int64_t i = piece * 100; i < (piece + 1) * 100; ++i)
        values[static_cast<std::size_t>(i)] += i;
    });
  }
  for (std::int64_t i = 0; i < 1000; ++i) REQUIRE(values[static_cast<std::size_t>(i)] == 2000 * i);
}

TEST_CASE("kernel threads: a helper that sleeps is woken") {
  const Rank rank(2);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 3));
    REQUIRE(two_threads_take_part());
  }
}

TEST_CASE("kernel threads: inside a call the calling thread does all") {
  const Rank rank(3);
  std::atomic<int> elsewhere = 0, inner = 0;
  run(6, kAll, [&](std::int64_t, int) {
    const auto id = std::this_thread::get_id();
    run(5, kAll, [&](std::int64_t, int thread) {
      ++inner;
      if (std::this_thread::get_id() != id || thread != 0) ++elsewhere;
    });
  });
  CHECK(inner == 30);
  CHECK(elsewhere == 0);
  CHECK(two_threads_take_part());
}

TEST_CASE("kernel threads: the first exception of a piece") {
  const Rank rank(3);
  for (const std::int64_t bad : {0, 4, 8}) {
    CHECK(thrown<std::runtime_error>([&] {
            run(9, kAll, [&](std::int64_t piece, int) {
              if (piece == bad) throw std::runtime_error("piece " + std::to_string(piece));
            });
          }) == "piece " + std::to_string(bad));
    CHECK(two_threads_take_part());
  }
  CHECK(thrown<std::runtime_error>([&] {
          run(2, 1, [](std::int64_t, int) { throw std::runtime_error("alone"); });
        }) == "alone");
}

#ifndef __SANITIZE_THREAD__  // which delays signals
std::atomic<int> stalled = 0, released = 0;

// A helper that the system does not schedule: it stays in the handler of a signal. Its owner has no other.
void run_beside_a_stalled_helper(int& by_caller, int& by_others) {
  const Rank rank(2);
  pthread_t helper{};
  std::atomic<int> arrived = 0;
  run(2, 2, [&](std::int64_t, int thread) {
    if (thread == 1) helper = pthread_self();
    ++arrived;
    reaches(arrived, 2);
  });
  if (arrived == 2 && pthread_kill(helper, SIGUSR1) == 0 && reaches(stalled, 1))
    run(100, 2, [&](std::int64_t, int thread) { ++(thread == 0 ? by_caller : by_others); });
  released = 1;
}

TEST_CASE("kernel threads: nobody waits for a helper that does not run") {
  stalled = released = 0;
  struct sigaction action = {}, previous = {};
  action.sa_handler = [](int) {
    stalled = 1;
    while (released == 0) {
    }
  };
  REQUIRE(sigaction(SIGUSR1, &action, &previous) == 0);
  int by_caller = 0, by_others = 0;
  std::thread([&] { run_beside_a_stalled_helper(by_caller, by_others); }).join();
  CHECK(by_caller == 100);
  CHECK(by_others == 0);
  sigaction(SIGUSR1, &previous, nullptr);
}
#endif

// Sanitizers need address space, and stop threads that a forked process does not have.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST_CASE("kernel threads: if the system refuses a thread, those that exist do the work") {
  std::vector<int> runs(1000);
  std::size_t threads = 0;
  bool is_limited = false;
  std::thread([&] {
    const Rank rank(200);
    rlimit previous{};
    getrlimit(RLIMIT_AS, &previous);
    const rlimit none = {.rlim_cur = 1 << 20, .rlim_max = previous.rlim_max};
    is_limited = setrlimit(RLIMIT_AS, &none) == 0;  // no room for the stack of a thread
    for (int call = 0; call < 3; ++call)
      run(1000, kAll, [&](std::int64_t piece, int) { ++runs[static_cast<std::size_t>(piece)]; });
    threads = threads_of_process();
    setrlimit(RLIMIT_AS, &previous);
  }).join();
  CHECK(is_limited);
  CHECK(runs == std::vector<int>(1000, 3));
  CHECK(threads < 200);
}

TEST_CASE("kernel threads: a forked process computes alone, and ends") {
  const Rank rank(3);
  CHECK(two_threads_take_part());
  const pid_t child = fork();
  if (child == 0) {
    std::int64_t sum = 0;
    run(10, 2, [&](std::int64_t piece, int) { sum += piece; });
    std::exit(sum == 45 ? 7 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
  CHECK(two_threads_take_part());
}
#endif

TEST_CASE(
    "kernel threads: several threads at once, each with helpers of its own that end with it") {
  const std::size_t before = threads_of_process();
  std::vector<std::thread> owners;
  std::atomic<int> wrong = 0;
  for (int o = 0; o < 4; ++o) {
    owners.emplace_back([&wrong, o] {
      const Rank rank(1 + o);
      for (std::int64_t call = 0; call < 200; ++call) {
        std::atomic<std::int64_t> sum = 0;
        run(call, kAll, [&](std::int64_t piece, int) { sum += piece; });
        if (sum != call * (call - 1) / 2) ++wrong;
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  CHECK(wrong == 0);
  CHECK(threads_of_process() == before);
}

}  // namespace
}  // namespace tessera
