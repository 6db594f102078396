// Deadlines, aborts and ranks that leave, by NCCL: in every phase, and without a rank left waiting.
#include <catch2/catch.hpp>

#include "tessera/tests/distributed/nccl/nccl_support.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;
using distributed::CollectiveAborted;
using std::chrono::milliseconds;

void nap(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }

// Waits, up to a minute, until so many ranks have counted themselves.
void wait_until(const std::atomic<int>& counter, int count) {
  for (int i = 0; counter < count && i < 30000; ++i) nap(2);
}

}  // namespace

TEST_CASE("nccl: a rank that does not come to connect is named at the deadline", "[gpu]") {
  const auto start = Clock::now();
  std::atomic<int> over = 0;
  const auto errors =
      run_nccl({.size = 2, .timeout = milliseconds(400)}, [&](const NcclGroupPtr& g) {
        if (g->rank() == 1) return wait_until(over, 1);
        struct Note {
          std::atomic<int>& over;
          ~Note() { ++over; }
        } note{over};
        all_reduce(*g, std::vector{on_gpu(*g, 3, 1)}, distributed::ReduceOp::kSum, "layers.1");
      });
  CHECK(seconds_since(start) < 10);
  CHECK(is_a<TimeoutError>(errors[0]));
  CHECK_THAT(text_of(errors[0]), Contains("[all_reduce] rank 0: all_reduce #1 (layers.1) of group "
                                          "\"g\" timed out after 0.4 s: rank 1 did not arrive"));
  CHECK(errors[1] == nullptr);
}

TEST_CASE("nccl: a rank that does not come to a collective is named at the deadline", "[gpu]") {
  const auto start = Clock::now();
  std::atomic<int> over = 0;
  const auto errors =
      run_nccl({.size = 3, .timeout = milliseconds(400)}, [&](const NcclGroupPtr& g) {
        const Tensor x = on_gpu(*g, 3, 1);
        all_reduce(*g, std::vector{x}).synchronize();
        if (g->rank() == 1) return wait_until(over, 2);
        struct Note {
          std::atomic<int>& over;
          ~Note() { ++over; }
        } note{over};
        all_reduce(*g, std::vector{x}, distributed::ReduceOp::kSum, "layers.1").synchronize();
      });
  CHECK(seconds_since(start) < 10);
  int late = 0;
  for (const int rank : {0, 2}) {
    const std::string text = text_of(errors[static_cast<std::size_t>(rank)]);
    CAPTURE(text);
    late += is_a<TimeoutError>(errors[static_cast<std::size_t>(rank)]) ? 1 : 0;
    CHECK_THAT(text, Contains("all_reduce #2 (layers.1) of group \"g\""));
    CHECK_THAT(text, Contains("timed out after 0.4 s: rank 1 did not arrive"));
  }
  CHECK(late >= 1);  // the other one may have heard of the first
}

TEST_CASE("nccl: a message that does not come is missed at the deadline", "[gpu]") {
  std::atomic<int> over = 0;
  const auto errors =
      run_nccl({.size = 3, .timeout = milliseconds(400)}, [&](const NcclGroupPtr& g) {
        const Tensor x = on_gpu(*g, 3, 1);
        if (g->rank() == 0) send(*g, std::vector{x}, 1).synchronize();
        if (g->rank() != 1) return wait_until(over, 1);
        struct Note {
          std::atomic<int>& over;
          ~Note() { ++over; }
        } note{over};
        recv(*g, std::vector{x}, 0).synchronize();
        recv(*g, std::vector{x}, 0, "another").synchronize();
      });
  CHECK(is_a<TimeoutError>(errors[1]));
  CHECK_THAT(text_of(errors[1]), Contains("recv (another) of group \"g\" timed out after 0.4 s: "
                                          "rank 0 did not arrive"));
}

TEST_CASE("nccl: an abort wakes every rank with its reason, and stays", "[gpu]") {
  const auto start = Clock::now();
  const auto errors = run_nccl({.size = 3}, [&](const NcclGroupPtr& g) {
    const Tensor x = on_gpu(*g, 3, 1);
    all_reduce(*g, std::vector{x}).synchronize();
    if (g->rank() == 1) {
      nap(50);
      g->abort("the dog ate it");
      g->abort("a second reason counts no more");
    }
    try {
      all_reduce(*g, std::vector{x}).synchronize();
    } catch (const CollectiveAborted&) {
    }
    all_reduce(*g, std::vector{x}, distributed::ReduceOp::kSum, "again");
  });
  CHECK(seconds_since(start) < 10);
  for (const std::exception_ptr& error : errors) {
    CHECK(is_a<CollectiveAborted>(error));
    CHECK_THAT(text_of(error), Contains("all_reduce #3 (again) of group \"g\" was aborted: rank 1 "
                                        "failed: the dog ate it"));
  }
}

TEST_CASE("nccl: an abort by another thread, while ranks connect", "[gpu]") {
  const auto start = Clock::now();
  const auto errors = run_nccl({.size = 2}, [&](const NcclGroupPtr& g) {
    if (g->rank() == 1) return nap(300);
    std::thread other([&g] {
      nap(100);
      g->abort("stop");
    });
    struct Join {
      std::thread& thread;
      ~Join() { thread.join(); }
    } join{other};
    all_reduce(*g, std::vector{on_gpu(*g, 3, 1)});
  });
  CHECK(seconds_since(start) < 10);
  CHECK(is_a<CollectiveAborted>(errors[0]));
  CHECK_THAT(text_of(errors[0]), Contains("was aborted: rank 0 failed: stop"));
}

TEST_CASE("nccl: what follows a collective that failed does not run for its waiter", "[gpu]") {
  const auto errors = run_nccl({.size = 2}, [&](const NcclGroupPtr& g) {
    const Tensor x = on_gpu(*g, 3, 1);
    all_reduce(*g, std::vector{x}).synchronize();
    if (g->rank() == 1) {
      nap(100);
      throw std::runtime_error("rank 1 has had enough");
    }
    all_reduce(*g, std::vector{x});
    host(x);  // waits for the stream
  });
  CHECK(is_a<CollectiveAborted>(errors[0]));
  CHECK_THAT(text_of(errors[0]),
             Contains("all_reduce #2 of group \"g\" was aborted: rank 1 failed: "
                      "it has left the group by an exception"));
  CHECK_THAT(text_of(errors[1]), Contains("rank 1 has had enough"));
}

TEST_CASE("nccl: a rank that has left is named by who needs it", "[gpu]") {
  const auto start = Clock::now();
  const auto errors = run_nccl({.size = 3}, [&](const NcclGroupPtr& g) {
    const Tensor x = on_gpu(*g, 3, 1);
    all_reduce(*g, std::vector{x}).synchronize();
    if (g->rank() == 2) return;
    all_reduce(*g, std::vector{x}).synchronize();
  });
  CHECK(seconds_since(start) < 10);
  bool named = false;
  for (const int rank : {0, 1}) {
    const std::string text = text_of(errors[static_cast<std::size_t>(rank)]);
    named |= text.find("needs rank 2, which has left the group") != std::string::npos;
    CHECK(errors[static_cast<std::size_t>(rank)] != nullptr);
  }
  CHECK(named);
}

TEST_CASE("nccl: groups end in any order, with work under way", "[gpu]") {
  for (int round = 0; round < 4; ++round) {
    const auto errors = run_nccl({.size = 3}, [&](const NcclGroupPtr& root) {
      NcclGroupPtr g = root, all = g->subgroup({0, 1, 2}, "all"), alone = g->subgroup({g->rank()});
      const Tensor x = on_gpu(*g, 3000, 1);
      stream_sleep(current_stream(x.device()), 5 * (g->rank() + 1));
      for (const NcclGroupPtr& each : {g, all, alone}) all_reduce(*each, std::vector{x});
      if (round % 2 == 1) g.reset();
      all.reset();
      alone.reset();
      current_stream(x.device()).synchronize();
      if (host(x)[2999] != 9) throw std::runtime_error("a wrong sum");
    });
    for (const std::exception_ptr& error : errors) CHECK(text_of(error) == "");
  }
}

TEST_CASE("nccl: a failure in one group ends the others of its ranks", "[gpu]") {
  const auto errors = run_nccl({.size = 2}, [&](const NcclGroupPtr& g) {
    const NcclGroupPtr part = g->subgroup({0, 1}, "part");
    const Tensor x = on_gpu(*g, 3, 1);
    all_reduce(*part, std::vector{x}).synchronize();
    if (g->rank() == 1) part->abort("no more");
    nap(50);
    all_reduce(*g, std::vector{x}).synchronize();
  });
  for (const std::exception_ptr& error : errors) CHECK(is_a<CollectiveAborted>(error));
}

}  // namespace tessera::testing
