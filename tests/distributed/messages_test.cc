// send, recv and exchange; sub-groups; Work.
#include <catch2/catch.hpp>
#include <thread>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/distributed/values.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::PeerTensor;
using distributed::ReduceOp;
using distributed::Work;

Tensor to_fill(std::int64_t count) { return full({count}, 77); }

// Every rank sends `count` + peer elements to every rank, itself included, twice.
void exchange_with_all(RankTest& t, std::int64_t count) {
  std::vector<PeerTensor> sends, receives;
  for (int peer = 0; peer < t.size(); ++peer) {
    for (std::size_t round = 0; round < 2; ++round) {
      sends.push_back({peer, rank_tensor<float>(t.rank(), round, count + peer)});
      receives.push_back({peer, to_fill(count + t.rank())});
    }
  }
  exchange(t.group(), sends, receives, "all pairs");
  for (std::size_t i = 0; i < receives.size(); ++i) {
    t.check_equal(receives[i].tensor, rank_tensor<float>(receives[i].peer, i % 2, count + t.rank()),
                  fmt::format("message {} from rank {}", i % 2, receives[i].peer));
  }
}

}  // namespace

TESSERA_RANK_TEST("an exchange delivers every message, in order for each pair", "[messages]") {
  exchange_with_all(t, 3);
  exchange_with_all(t, 0);
  exchange_with_all(t, 20000);
}

TESSERA_RANK_TEST_WITH("exchanges on a queued stream", "[messages]",
                       {.cpu_compute = StreamKind::kQueued}) {
  exchange_with_all(t, 3);
  exchange_with_all(t, 9000);
}

TESSERA_RANK_TEST("send and recv hand a value from rank to rank, between collectives",
                  "[messages]") {
  const Tensor x = full({3}, t.rank() == 0 ? 5 : 0);
  const Tensor sum = full({2}, 1);
  if (t.rank() > 0) recv(t.group(), std::vector{x}, t.rank() - 1, "chain");
  add_(x, full({3}, 1));
  if (t.rank() + 1 < t.size()) send(t.group(), std::vector{x}, t.rank() + 1, "chain");
  all_reduce(t.group(), std::vector{sum});
  t.check_equal(x, full({3}, 6.0 + t.rank()), "value");
  t.check_equal(sum, full({2}, t.size()), "collective");
}

TESSERA_RANK_TEST("a list of tensors is several messages; other pairs are not disturbed",
                  "[messages]") {
  if (t.size() < 2) return;
  const std::vector<Tensor> two = {rank_tensor<double>(0, 0, 4), rank_tensor<double>(0, 1, 2)};
  if (t.rank() == 0) send(t.group(), two, 1);
  if (t.rank() == 1) {
    const Tensor first = full({4}, 0, {.dtype = DType::kF64}),
                 second = full({2}, 0, {.dtype = DType::kF64});
    recv(t.group(), std::vector{first}, 0);  // in two calls
    recv(t.group(), std::vector{second}, 0);
    t.check_equal(first, two[0], "first");
    t.check_equal(second, two[1], "second");
  }
}

// Numbers begin with a world.
TESSERA_RANK_TEST_WITH("messages are traced and counted, but not numbered with collectives",
                       "[messages]", {.own_launch = true}) {
  const int next = (t.rank() + 1) % t.size(), before = (t.rank() + t.size() - 1) % t.size();
  const Tensor out = full({5}, t.rank()), in = to_fill(5);
  const std::int64_t bytes = distributed::collective_counters().bytes_sent;
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    exchange(t.group(), std::vector<PeerTensor>{{next, out}}, std::vector<PeerTensor>{{before, in}},
             "ring");
    barrier(t.group());
  }
  const auto records = trace.all<CollectiveRecord>();
  if (!t.check(records.size() == 2, "{} records", records.size())) return;
  t.check(records[0].op == "exchange" && records[0].sequence == 0 && records[0].label == "ring",
          "record {} #{}", records[0].op, records[0].sequence);
  t.check(records[1].sequence == 1, "the barrier is number {}", records[1].sequence);
  t.check(distributed::collective_counters().bytes_sent - bytes == (t.size() > 1 ? 20 : 0),
          "other bytes");
  t.check_equal(in, full({5}, before), "value");
}

TESSERA_RANK_TEST("what messages refuse", "[messages]") {
  const Tensor x = to_fill(2);
  t.check_throws<InvalidArgument>(
      fmt::format("[send] rank {}: {} is not a rank of group", t.rank(), t.size()),
      [&] { send(t.group(), std::vector{x}, t.size()); });
  t.check_throws<InvalidArgument>("[recv]", [&] { recv(t.group(), std::vector{x}, -1); });
  t.check_throws<InvalidArgument>("[recv]", [&] {
    recv(t.group(), std::vector{x.unsqueeze(0).expand({3, 2})}, 0);
  });
}

TESSERA_RANK_TEST_WITH("a message of another size is an error on both sides", "[messages]",
                       {.worlds = {2},
                        .expect_failure = "does not agree between ranks: rank 0 "
                                          "sends 3 elements of f32 to rank 1, which "
                                          "expects 4 of f32"}) {
  const DefaultDeviceScope host(kCpu);  // GPUs would be named too
  if (test_transport() != "local") {    // gloo: the deadline, in group_failure_test
    throw std::runtime_error(
        "does not agree between ranks: rank 0 sends 3 elements of f32 to rank 1, which expects 4 "
        "of f32");
  }
  const Tensor x = to_fill(t.rank() == 0 ? 3 : 4);
  if (t.rank() == 0) {
    t.check_throws<CollectiveError>("which expects 4 of f32",
                                    [&] { send(t.group(), std::vector{x}, 1); });
  } else {
    recv(t.group(), std::vector{x}, 0);
  }
}

TESSERA_RANK_TEST("sub-groups number and reduce by themselves", "[messages]") {
  const int parity = t.rank() % 2;
  const auto group = split(t.group(), parity, -t.rank());  // in reverse order of ranks
  std::vector<int> members;
  for (int r = t.size() - 1; r >= 0; --r) {
    if (r % 2 == parity) members.push_back(r);
  }
  t.check(group->ranks() == members, "members {}", fmt::join(group->ranks(), ","));
  t.check(members[static_cast<std::size_t>(group->rank())] == t.rank(), "rank {}", group->rank());
  t.check(group->name() == fmt::format("world[{}]", fmt::join(members, ",")), "name {}",
          group->name());
  for (std::size_t round = 0; round < 3; ++round) {
    if (parity == 0 && round == 1) continue;  // the other half goes on alone
    const Tensor x = rank_tensor<double>(t.rank(), round, 5);
    all_reduce(*group, std::vector{x});
    Tensor expected = zeros({5}, {.dtype = DType::kF64});
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Tensor theirs = rank_tensor<double>(members[i], round, 5);
      expected = i == 0 ? theirs : add(expected, theirs);
    }
    t.check_equal(x, expected, fmt::format("round {}", round));
  }
  const Tensor x = full({1}, t.rank());
  broadcast(*group, std::vector{x}, group->size() - 1);
  t.check(x.item<float>() == float(members.back()), "broadcast {}", x.item<float>());
  barrier(t.group());
}

// Not checked: ranks issue the collectives of two groups in opposite orders, which checked groups
// refuse.
TESSERA_RANK_TEST_WITH("a sub-group made twice, and one of a sub-group, do not meet", "[messages]",
                       {.checked = false}) {
  const DefaultDeviceScope host(kCpu);  // whose streams this is about
  std::vector<int> all;
  for (int r = 0; r < t.size(); ++r) all.push_back(r);
  const auto first = t.group().subgroup(all, "reference"),
             second = t.group().subgroup(all, "reference");
  const auto inner = first->subgroup(all);
  t.check(inner->name().rfind("reference[0", 0) == 0, "name {}", inner->name());
  // Opposite orders on different streams: only groups that are apart can do this.
  const DeviceStream a = DeviceStream::create(kCpu, StreamKind::kQueued, "a"),
                     b = DeviceStream::create(kCpu, StreamKind::kQueued, "b");
  const Tensor x = full({3}, t.rank()), y = full({3}, 10 * t.rank()), z = full({3}, 1);
  const auto on = [&](const DeviceStream& stream, distributed::ProcessGroup& group,
                      const Tensor& tensor) {
    const StreamGuard guard(stream);
    all_reduce(group, std::vector{tensor});
  };
  if (t.rank() % 2 == 0) {
    on(a, *first, x);
    on(b, *second, y);
  } else {
    on(b, *second, y);
    on(a, *first, x);
  }
  a.synchronize();
  b.synchronize();
  all_reduce(*inner, std::vector{z});
  const double total = t.size() * (t.size() - 1) / 2.0;
  t.check_equal(x, full({3}, total), "first");
  t.check_equal(y, full({3}, 10 * total), "second");
  t.check_equal(z, full({3}, t.size()), "inner");
}

TESSERA_RANK_TEST("a negative color takes part in no sub-group", "[messages]") {
  const auto group = split(t.group(), t.rank() == 0 ? -1 : 3, 0, "rest");
  t.check((group == nullptr) == (t.rank() == 0), "rank 0 got a group, or another did not");
  if (group) t.check(group->name() == "rest" && group->size() == t.size() - 1, "wrong group");
  t.check_throws<InvalidArgument>("stands twice among the members", [&] {
    t.group().subgroup({t.rank(), t.rank()});
  });
  t.check_throws<InvalidArgument>("is not a rank of group \"world\"", [&] {
    t.group().subgroup({t.rank(), t.size()});
  });
  t.check_throws<InvalidArgument>("only members make a sub-group", [&] { t.group().subgroup({}); });
}

TESSERA_RANK_TEST_WITH("work on a queued stream: done, waited for, continued", "[messages]",
                       {.own_launch = true}) {
  const DefaultDeviceScope host(kCpu);  // whose streams this is about
  const DeviceStream comm = DeviceStream::create(kCpu, StreamKind::kQueued, "comm");
  const Tensor x = full({4}, t.rank());
  Work work;
  t.check(work.is_done(), "work that never was is not done");
  work.wait();
  work.synchronize();
  t.check_throws<StateError>("has no stream and no event", [&] { work.event(); });
  int calls = 0;
  work.then([&] { ++calls; });
  t.check(calls == 1, "then of done work ran {} times", calls);
  {
    const StreamGuard guard(comm);
    stream_sleep(comm, 30);
    work = all_reduce(t.group(), std::vector{x}, ReduceOp::kSum, "slow");
    work.then([&] { ++calls; });
  }
  t.check(!work.is_done(), "done too early");
  t.check_throws<TimeoutError>("all_reduce #1 (slow) of group \"world\" is not done after 1 ms",
                               [&] { work.synchronize(std::chrono::milliseconds(1)); });
  work.wait();  // the compute stream is inline: the host waits
  t.check_equal(x, full({4}, t.size() * (t.size() - 1) / 2.0), "value");
  t.check(work.event().is_ready(), "the event is not ready");
  comm.synchronize();
  work.synchronize(std::chrono::seconds(10));
  t.check(calls == 2, "then ran {} times", calls);
  t.check_throws<InvalidArgument>("the function is empty", [&] { work.then(nullptr); });
  barrier(t.group());
}

TESSERA_RANK_TEST_WITH("a message has no number in the text of its deadline", "[messages]",
                       {.worlds = {2}, .cpu_compute = StreamKind::kQueued}) {
  const DefaultDeviceScope host(kCpu);  // whose streams this is about
  const Tensor x = full({4}, 1);
  stream_sleep(current_stream(kCpu), 50);
  const Work work =
      t.rank() == 0 ? send(t.group(), std::vector{x}, 1) : recv(t.group(), std::vector{x}, 0);
  t.check_throws<TimeoutError>(
      fmt::format("{} of group \"world\" is not done after 1 ms", t.rank() == 0 ? "send" : "recv"),
      [&] { work.synchronize(std::chrono::milliseconds(1)); });
  work.synchronize();
}

TESSERA_RANK_TEST("work on an inline stream is done, and continues at once", "[messages]") {
  const DefaultDeviceScope host(kCpu);  // whose streams this is about
  const Tensor x = full({4}, 1);
  int calls = 0;
  all_reduce(t.group(), std::vector{x}).then([&] { ++calls; });
  t.check(calls == 1, "then ran {} times", calls);
}

// Each rank has its own counters, memory and random numbers, and no more than its thread.
TEST_CASE("a hundred and twenty-eight ranks in one process", "[messages]") {
  const auto errors = run_ranks(128, [](distributed::World& world) {
    RankTest t(world);
    const Tensor x = full({3}, t.rank());
    all_reduce(t.group(), std::vector{x});
    t.check_equal(x, full({3}, 128 * 127 / 2), "sum");
    const auto row = split(t.group(), t.rank() / 16);
    const Tensor all = to_fill(16);
    all_gather(*row, std::vector{full({1}, t.rank())}, std::vector{all});
    t.check(all.to_vector<float>()[15] == float(t.rank() / 16 * 16 + 15), "row {}", all.str());
    barrier(t.group());
    t.check(distributed::collective_counters().collectives == 4, "{} counted",
            distributed::collective_counters().collectives);
    t.check(current_rank_context()->rank() == t.rank(), "context");
    if (!t.failures().empty()) throw std::runtime_error(t.failures().front());
  });
  CHECK(exception_texts(errors) == std::vector<std::string>(128));
}

}  // namespace tessera::testing
