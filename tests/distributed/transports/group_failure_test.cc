// Deadlines, aborts, ranks that leave or disagree: on every transport, each rank a thread of this
// process. Groups of processes ("gloo") also with every rank, or two of them, on a node of its own,
// so that TCP carries all messages or some.
#include <sched.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/store/store.h"
#include "tessera/distributed/transports/process_group_gloo.h"
#include "tessera/distributed/transports/process_group_local.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/support/temporary_folder.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;
using Group = std::shared_ptr<ProcessGroup>;

constexpr std::chrono::milliseconds kLong = std::chrono::seconds(60);

std::string node_of(const std::string& transport, int rank) {
  if (transport == "gloo, by TCP") return std::to_string(rank);
  return transport == "gloo, two nodes" ? std::to_string(rank % 2) : "";
}

// Runs `body` as every rank of a group on `transport`; returns each rank's exception (null: none).
// The group is destroyed when the body has ended, in any way.
std::vector<std::exception_ptr> run(const std::string& transport, int size,
                                    std::chrono::milliseconds timeout,
                                    const std::function<void(Group&)>& body) {
  std::vector<Group> local;
  const testing::TemporaryFolder folder;
  if (transport == "local") local = make_local_groups("g", size, timeout);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      RankScope scope(std::make_shared<RankContext>(rank, size, 1));
      const auto r = static_cast<std::size_t>(rank);
      try {
        Group group =
            transport == "local"
                ? std::move(local[r])
                : make_gloo_group("g", {.rank = rank,
                                        .size = size,
                                        .store = std::make_shared<FolderStore>(folder.path()),
                                        .node = node_of(transport, rank),
                                        .timeout = timeout});
        body(group);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::string text(const std::exception_ptr& error) {
  return error ? describe_failure(-1, error).text : "";
}

template <class E>
bool is_a(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
  }
  return false;
}

Tensor some(int count) {
  return Tensor::from_vector<float>(std::vector<float>(static_cast<std::size_t>(count), 1),
                                    {count});
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

TEST_CASE("a rank that does not come is named at the deadline", "[timeout]") {
  const std::string transport = GENERATE("local", "gloo", "gloo, by TCP", "gloo, two nodes");
  CAPTURE(transport);
  const auto start = Clock::now();
  std::atomic<int> waited = 0;
  const auto errors = run(transport, 4, std::chrono::milliseconds(500), [&](Group& group) {
    barrier(*group);
    if (group->rank() % 2 == 1) {  // stays away, but keeps its group
      while (waited < 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return;
    }
    struct Note {
      std::atomic<int>& waited;
      ~Note() { ++waited; }
    } note{waited};
    if (group->rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(250));
    all_reduce(*group, std::vector{some(3)}, ReduceOp::kSum, "layers.1");
  });
  CHECK(seconds_since(start) < 5);
  CHECK_THAT(text(errors[0]), Contains("[all_reduce] rank 0: all_reduce #2 (layers.1) of group "
                                       "\"g\" timed out after 0.5 s: ranks 1, 3 did not arrive"));
  CHECK(is_a<TimeoutError>(errors[0]));
  CHECK(is_a<CollectiveAborted>(errors[2]));
  CHECK_THAT(
      text(errors[2]),
      Contains("was aborted: rank 0 failed: all_reduce #2 (layers.1) of group \"g\" timed out"));
}

TEST_CASE("an abort wakes every rank with its reason, and stays", "[abort]") {
  const std::string transport = GENERATE("local", "gloo", "gloo, by TCP", "gloo, two nodes");
  CAPTURE(transport);
  const auto start = Clock::now();
  const auto errors = run(transport, 3, kLong, [&](Group& group) {
    barrier(*group);
    if (group->rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      group->abort("the dog ate it");
      group->abort("a second reason counts no more");
    }
    try {
      all_gather(*group, std::vector{some(2)}, std::vector{some(6)}, "w");
    } catch (const CollectiveAborted&) {
    }
    barrier(*group);
  });
  CHECK(seconds_since(start) < 5);
  for (const std::exception_ptr& error : errors) {
    CHECK(is_a<CollectiveAborted>(error));
    CHECK_THAT(
        text(error),
        Contains("[barrier] rank ") &&
            Contains("barrier #3 of group \"g\" was aborted: rank 1 failed: the dog ate it"));
  }
  try {
    std::rethrow_exception(errors[0]);
  } catch (const CollectiveError& error) {
    CHECK(error.site().rank == 0);
    CHECK(error.site().group == "g");
    CHECK(error.site().op == "barrier");
    CHECK(error.site().sequence == 3);
  }
}

TEST_CASE("an abort from another thread wakes a queued collective and poisons its stream",
          "[abort]") {
  const std::string transport = GENERATE("local", "gloo", "gloo, by TCP", "gloo, two nodes");
  CAPTURE(transport);
  const auto errors = run(transport, 2, kLong, [&](Group& group) {
    barrier(*group);
    const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "comm");
    StreamGuard guard(stream);
    if (group->rank() == 1) {
      std::thread([&] { group->abort("from elsewhere"); }).join();
      return;
    }
    const Tensor x = some(100000);
    all_reduce(*group, std::vector{x});
    const DeviceEvent event = stream.record("reduced");
    CHECK_THROWS_AS(event.synchronize(), CollectiveAborted);
    stream.synchronize();
  });
  CHECK_THAT(text(errors[0]), Contains("rank 1 failed: from elsewhere"));
}

TEST_CASE("an abort wakes a wait of the same rank", "[abort]") {
  const std::string transport = GENERATE("local", "gloo", "gloo, by TCP", "gloo, two nodes");
  CAPTURE(transport);
  const auto start = Clock::now();
  std::atomic<bool> stay = true;
  const auto errors = run(transport, 3, kLong, [&](Group& group) {
    barrier(*group);
    if (group->rank() > 0) {  // do not come, and keep their groups
      while (stay) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      group->abort("from another thread");
    });
    try {
      all_reduce(*group, std::vector{some(3)});
    } catch (...) {
      stay = false;
      other.join();
      throw;
    }
  });
  CHECK(seconds_since(start) < 5);
  CHECK(is_a<CollectiveAborted>(errors[0]));
  CHECK_THAT(text(errors[0]), Contains("all_reduce #2 of group \"g\" was aborted: rank 0 failed: "
                                       "from another thread"));
}

TEST_CASE("a message is not sent by receiving another one", "[leave]") {
  const std::string transport = GENERATE("local", "gloo", "gloo, by TCP");
  CAPTURE(transport);
  const auto errors = run(transport, 2, kLong, [&](Group& group) {
    const Tensor x = some(3), y = some(3);
    if (group->rank() == 1) {
      send(*group, std::span(&x, 1), 0);
      return;  // and receives nothing
    }
    const PeerTensor to{1, x}, from{1, y};
    exchange(*group, std::span(&to, 1), std::span(&from, 1));
  });
  CHECK(text(errors[1]) == "");
  CHECK_THAT(text(errors[0]), Contains("needs rank 1, which has left the group"));
}

TEST_CASE("a rank that has left is named by those who need it", "[leave]") {
  const std::string transport = GENERATE("local", "gloo", "gloo, by TCP", "gloo, two nodes");
  CAPTURE(transport);
  const auto start = Clock::now();
  const auto errors = run(transport, 3, kLong, [&](Group& group) {
    barrier(*group);
    if (group->rank() == 2) return;
    all_reduce(*group, std::vector{some(3)});
  });
  CHECK(seconds_since(start) < 5);
  int direct = 0;
  for (int rank : {0, 1}) {
    const std::exception_ptr& error = errors[static_cast<std::size_t>(rank)];
    CHECK(is_a<CollectiveError>(error));
    CHECK_THAT(text(error), Contains("all_reduce #2 of group \"g\"") &&
                                Contains("needs rank 2, which has left the group"));
    direct += !is_a<CollectiveAborted>(error);
  }
  CHECK(direct >= 1);
}

TEST_CASE("a rank that leaves early does not disturb the others", "[leave]") {
  const std::string transport = GENERATE("local", "gloo", "gloo, by TCP", "gloo, two nodes");
  CAPTURE(transport);
  const auto errors = run(transport, 3, kLong, [&](Group& group) {
    // Rank 0 sends all it has and is gone while the others still wait for rank 1.
    const Tensor x = some(50000);
    if (group->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    broadcast(*group, std::vector{x}, 0);
    if (group->rank() == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  });
  for (const std::exception_ptr& error : errors) CHECK(text(error) == "");
}

TEST_CASE("local ranks that disagree are told how", "[disagree]") {
  const auto errors = run("local", 2, kLong, [&](Group& group) {
    if (group->rank() == 0) {
      all_reduce(*group, std::vector{some(3)}, ReduceOp::kSum, "a");
    } else {
      broadcast(*group, std::vector{some(4)}, 1, "b");
    }
  });
  const std::string both = text(errors[0]) + " | " + text(errors[1]);
  CHECK_THAT(both, Contains("does not agree between ranks") &&
                       Contains("all_reduce (a) by sum of f32, 1 members, 3 elements") &&
                       Contains("broadcast (b) from rank 1 of f32, 1 members, 4 elements"));
  CHECK(is_a<CollectiveAborted>(errors[0]) != is_a<CollectiveAborted>(errors[1]));
}

TEST_CASE("gloo ranks that disagree in extents run into the deadline, not into each other's memory",
          "[disagree]") {
  const std::string transport = GENERATE("gloo", "gloo, by TCP");
  const auto errors = run(transport, 2, std::chrono::milliseconds(300), [&](Group& group) {
    all_reduce(*group, std::vector{some(group->rank() == 0 ? 10 : 50000)});
  });
  CHECK((is_a<TimeoutError>(errors[0]) || is_a<TimeoutError>(errors[1])));
  CHECK_THAT(text(errors[0]) + text(errors[1]),
             Contains("did not arrive, or issued another collective instead"));
}

TEST_CASE("ranks that disagree about the rows between them are told", "[disagree]") {
  const std::string transport = GENERATE("local", "gloo", "gloo, by TCP", "gloo, two nodes");
  CAPTURE(transport);
  // Rank 0 means to send 5 rows of 8 bytes to rank 1, which expects 3.
  const auto errors = run(transport, 2, std::chrono::milliseconds(300), [&](Group& group) {
    const bool first = group->rank() == 0;
    const RowCounts rows = first ? RowCounts{.sent = {1, 5}, .received = {1, 2}}
                                 : RowCounts{.sent = {2, 0}, .received = {3, 0}};
    all_to_all(*group, std::vector{some(first ? 12 : 4).view({first ? 6 : 2, 2})},
               std::vector{some(6).view({3, 2})}, rows);
  });
  const std::string both = text(errors[0]) + " | " + text(errors[1]);
  CAPTURE(both);
  if (transport == "local") {
    CHECK_THAT(both, Contains("does not agree between ranks: rank 0 sends 5 rows to rank 1, which "
                              "expects 3"));
    CHECK(is_a<CollectiveAborted>(errors[0]) != is_a<CollectiveAborted>(errors[1]));
  } else {
    CHECK_THAT(both, Contains("did not arrive, or issued another collective instead"));
    CHECK((is_a<TimeoutError>(errors[0]) || is_a<TimeoutError>(errors[1])));
  }
}

// For batch threads Linux takes no core from another.
TEST_CASE("gloo's threads are batch threads, and those that connect stay as they were",
          "[connect]") {
  const auto batch_threads = [] {
    int count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      count += sched_getscheduler(std::stoi(task.path().filename())) == SCHED_BATCH;
    return count;
  };
  const int policy = GENERATE(SCHED_OTHER, SCHED_BATCH);
  constexpr sched_param kNoPriority = {};
  REQUIRE(sched_setscheduler(0, policy, &kNoPriority) == 0);  // of the ranks too
  const auto errors = run("gloo", 2, kLong, [&](Group& group) {
    if (sched_getscheduler(0) != policy) throw StateError("the rank is scheduled otherwise");
    barrier(*group);
    const int found = batch_threads();
    barrier(*group);
    // Where the ranks are batch threads, so are all that they start.
    if (policy == SCHED_OTHER && found != 2)
      throw StateError(std::to_string(found) + " batch threads");
  });
  REQUIRE(sched_setscheduler(0, SCHED_OTHER, &kNoPriority) == 0);
  for (const auto& error : errors) CHECK(text(error).empty());
}

TEST_CASE("gloo names the ranks that do not come to connect", "[connect]") {
  const testing::TemporaryFolder folder;
  const auto store = std::make_shared<FolderStore>(folder.path());
  CHECK_THROWS_WITH(
      make_gloo_group(
          "lonely",
          {.rank = 1, .size = 3, .store = store, .timeout = std::chrono::milliseconds(100)}),
      Contains("group \"lonely\": ranks 0, 2 did not come within 0.1 s"));
  CHECK_THROWS_WITH(make_gloo_group("lonely", {.rank = 1, .size = 3, .store = store}),
                    Contains("group \"lonely\": another rank 1 has joined already"));
}

TEST_CASE("128 rank threads meet", "[local]") {
  const auto errors = run("local", 128, kLong, [&](Group& group) {
    for (int round = 0; round < 3; ++round) {
      const Tensor x = some(5);
      all_reduce(*group, std::vector{x});
      if (x.to_vector<float>()[4] != 128) throw std::runtime_error("wrong sum");
    }
  });
  for (const std::exception_ptr& error : errors) REQUIRE(text(error) == "");
}

TEST_CASE("a failure on a stream's worker aborts the group and is the rank's failure", "[runner]") {
  auto groups = make_local_groups("world", 2, kLong);
  std::vector<std::optional<RankFailure>> failures(2);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r, group = std::move(groups[r])] {
      failures[r] = run_rank({}, group, [&](World& world) {
        const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "side");
        if (world.rank() == 1) stream.enqueue("boom", [] { throw InvalidArgument("boom"); });
        barrier(*world.group());  // rank 1 never synchronizes the stream that failed
        barrier(*world.group());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failures[1]);
  CHECK(failures[1]->text == "boom");
  CHECK_FALSE(failures[1]->echo);
  if (failures[0]) CHECK(failures[0]->echo);
}

}  // namespace tessera::distributed
