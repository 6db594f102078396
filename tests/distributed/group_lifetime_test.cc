// Sub-groups and work that end before, after or together with what they came from; memory that a
// call may not use twice; messages of a rank to itself.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/decorators.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::CollectiveKind;
using distributed::PeerTensor;
using distributed::ProcessGroup;
using distributed::ReduceOp;
using distributed::Work;
using Group = std::shared_ptr<ProcessGroup>;
using std::chrono::milliseconds;

std::vector<int> all_of(const RankTest& t) {
  std::vector<int> out;
  for (int r = 0; r < t.size(); ++r) out.push_back(r);
  return out;
}

}  // namespace

TESSERA_RANK_TEST_WITH("a sub-group that goes away finishes what it has queued", "[lifetime]",
                       {.worlds = {1, 3}, .cpu_compute = StreamKind::kQueued}) {
  const Tensor x = full({4}, 1);
  stream_sleep(current_stream(kCpu), t.rank() == 0 ? 150 : 50);
  {
    const Group group = t.group().subgroup(all_of(t));
    all_reduce(*group, std::vector{x});
  }
  current_stream(kCpu).synchronize();
  t.check_equal(x, full({4}, t.size()));
}

TESSERA_RANK_TEST_WITH("work outlives its tensors, group and stream", "[lifetime]",
                       {.worlds = {1, 3}}) {
  Work work;
  {
    const StreamGuard guard(DeviceStream::create(kCpu, StreamKind::kQueued, "short"));
    const Group group = t.group().subgroup(all_of(t));
    work = all_reduce(*group, std::vector{full({4000}, 1)});
  }
  work.synchronize(std::chrono::seconds(30));
  work.wait();
  t.check(work.is_done(), "not done");
}

// The rank's sub-groups end before its exception reaches any other rank.
TESSERA_RANK_TEST_WITH("a rank that throws with sub-groups in scope is the failure", "[lifetime]",
                       {.worlds = {3}, .expect_failure = "rank 1: the reason"}) {
  const Group group = t.group().subgroup(all_of(t));
  if (t.rank() == 1) {
    std::this_thread::sleep_for(milliseconds(50));
    throw std::runtime_error("the reason");
  }
  all_reduce(*group, std::vector{full({4}, 1)});
}

TESSERA_RANK_TEST_WITH("an abort reaches the sub-groups of sub-groups", "[lifetime]",
                       {.worlds = {3}, .checked = false, .own_launch = true}) {
  const Group group = t.group().subgroup(all_of(t)), inner = group->subgroup(all_of(t));
  barrier(t.group());
  const auto begin = std::chrono::steady_clock::now();
  if (t.rank() == 1) {
    std::this_thread::sleep_for(milliseconds(50));
    t.group().abort("enough");
  }
  t.check_throws<distributed::CollectiveAborted>(
      "rank 1 failed: enough", [&] { all_reduce(*inner, std::vector{full({4}, 1)}); });
  t.check(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "too slow");
  t.check_throws<distributed::CollectiveAborted>("enough", [&] { barrier(*group); });
}

TESSERA_RANK_TEST_WITH(
    "errors of a sub-group name ranks of the world", "[lifetime]",
    {.worlds = {3}, .timeout = milliseconds(500), .checked = false, .own_launch = true}) {
  const Group group = t.group().subgroup({2, 0, 1}, "turned");
  const Tensor x = full({4}, 1);
  if (t.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  } else {
    t.check_throws<Error>("rank 1 did not arrive", [&] { all_reduce(*group, std::vector{x}); });
  }
}

TESSERA_RANK_TEST_WITH("sub-groups of a group and of its decorated form do not meet", "[lifetime]",
                       {.worlds = {2, 3}, .checked = false}) {
  const Group slow = distributed::delay(t.world().group(), CollectiveKind::kGather, 1);
  Group first = t.group().subgroup(all_of(t));
  const Group second = slow->subgroup(all_of(t));
  const DeviceStream a = DeviceStream::create(kCpu, StreamKind::kQueued, "a"),
                     b = DeviceStream::create(kCpu, StreamKind::kQueued, "b");
  const Tensor x = full({3}, 1), y = full({3}, 1);
  stream_sleep(a, 30 * t.rank());
  stream_sleep(b, 30 * (t.size() - t.rank()));
  {
    const StreamGuard guard(a);
    all_reduce(*first, std::vector{x});
  }
  {
    const StreamGuard guard(b);
    all_reduce(*second, std::vector{y}, ReduceOp::kMax);
  }
  a.synchronize();
  b.synchronize();
  t.check_equal(x, full({3}, t.size()));
  t.check_equal(y, full({3}, 1));
  first.reset();
  barrier(t.group());
  all_reduce(*second, std::vector{y});
  t.check_equal(y, full({3}, t.size()));
}

TESSERA_RANK_TEST("memory that is written is used once", "[memory]") {
  ProcessGroup& group = t.group();
  const int size = t.size(), next = (t.rank() + 1) % size;
  const Tensor whole = full({4 * size}, 1), part = full({4}, 1);
  const auto place = [&whole](int rank) { return whole.slice(0, 4 * rank, 4 * rank + 4); };
  const auto refuses = [&t](const std::string& what, const auto& call) {
    t.check_throws<InvalidArgument>(what + " share memory; pass another tensor", call);
  };
  refuses("input 0 and input 1", [&] {
    all_reduce(group, std::vector{whole, whole.slice(0, 3, 4)});
  });
  refuses("input 0 and input 1", [&] { broadcast(group, std::vector{part, part}, 0); });
  refuses("input 1 and output 0", [&] {
    all_gather(group, std::vector{part, place(t.rank())}, std::vector{whole, clone(whole)});
  });
  refuses("output 0 and output 1", [&] {
    all_gather(group, std::vector{part, part}, std::vector{whole, whole});
  });
  refuses("input 0 and output 0", [&] {
    exchange(group, std::vector{PeerTensor{next, part}}, std::vector{PeerTensor{next, part}});
  });
  if (size > 1) {
    refuses("input 0 and output 0",
            [&] { all_gather(group, std::vector{place(next)}, std::vector{whole}); });
    refuses("input 0 and output 0",
            [&] { reduce_scatter(group, std::vector{whole}, std::vector{place(next)}); });
    const bool is_root = t.rank() == 0;
    if (is_root) {
      refuses("input 0 and output 0",
              [&] { scatter(group, std::vector{whole}, std::vector{place(1)}, 0); });
      refuses("input 0 and output 0",
              [&] { gather(group, std::vector{place(1)}, std::vector{whole}, 0); });
    }
  }
  // What is only read may be read twice, neighbours and tensors without elements share nothing.
  const Tensor one = full({4 * size}, 0), two = full({4 * size}, 0);
  all_gather(group, std::vector{part, part}, std::vector{one, two});
  t.check_equal(one, two);
  all_reduce(group, std::vector{one.slice(0, 0, 2), one.slice(0, 2, 4), one.slice(0, 1, 1)});
  t.check_equal(one.slice(0, 0, 4), full({4}, size));
  const Tensor none = whole.slice(0, 2, 2);
  all_to_all(group, std::vector{whole, none}, std::vector{two, whole.slice(0, 1, 1)});
}

TESSERA_RANK_TEST("a rank's messages to itself are sent and received in one call", "[memory]") {
  ProcessGroup& group = t.group();
  const int me = t.rank();
  const Tensor x = full({4}, 3), longer = full({8}, 1), y = full({4}, 0);
  t.check_throws<InvalidArgument>(
      "sends itself tensors of [4] elements and receives from itself []",
      [&] { send(group, std::vector{x}, me); });
  t.check_throws<InvalidArgument>(
      "sends itself tensors of [] elements and receives from itself [4]",
      [&] { recv(group, std::vector{x}, me); });
  t.check_throws<InvalidArgument>("of [4] elements and receives from itself [8]", [&] {
    exchange(group, std::vector{PeerTensor{me, x}}, std::vector{PeerTensor{me, longer}});
  });
  exchange(group, std::vector{PeerTensor{me, x}}, std::vector{PeerTensor{me, y}});
  t.check_equal(y, x);
}

}  // namespace tessera::testing
