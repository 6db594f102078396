// Groups whose other ranks do not exist, and decorators that break things.
#include "tessera/distributed/transports/process_group_fake.h"

#include <catch2/catch.hpp>
#include <chrono>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/decorators.h"
#include "tessera/distributed/device_groups.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using distributed::CollectiveKind;
using distributed::FakeData;
using distributed::make_fake_group;
using distributed::ReduceOp;

std::vector<float> values(const Tensor& tensor) { return tensor.to_vector<float>(); }
Tensor of(const std::vector<float>& elements) {
  return Tensor::from_vector(elements, {static_cast<std::int64_t>(elements.size())});
}

}  // namespace

TEST_CASE("a fake rank gets zeros where the others would have sent something", "[fake]") {
  const auto group = make_fake_group("plan", {.rank = 1, .size = 3});
  CHECK(group->backend() == "fake");
  CHECK(group->size() == 3);
  const Tensor all = full({6}, 9), part = full({2}, 9), mine = of({1, 2, 3, 4, 5, 6});
  all_gather(*group, std::vector{of({1, 2})}, std::vector{all});
  CHECK(values(all) == std::vector<float>{0, 0, 1, 2, 0, 0});
  reduce_scatter(*group, std::vector{mine}, std::vector{part});
  CHECK(values(part) == std::vector<float>{3, 4});
  all_reduce(*group, std::vector{mine});
  CHECK(values(mine) == std::vector<float>{1, 2, 3, 4, 5, 6});
  all_to_all(*group, std::vector{mine}, std::vector{all});
  CHECK(values(all) == std::vector<float>{0, 0, 3, 4, 0, 0});
  scatter(*group, {}, std::vector{part}, 0);
  CHECK(values(part) == std::vector<float>{0, 0});
  const Tensor received = full({2}, 9);
  exchange(*group, std::vector<distributed::PeerTensor>{{1, of({7, 8})}, {0, of({1, 1})}},
           std::vector<distributed::PeerTensor>{{1, received}, {2, part}});
  CHECK(values(received) == std::vector<float>{7, 8});
  CHECK(values(part) == std::vector<float>{0, 0});
  barrier(*group);
}

TEST_CASE("or what it has itself, as often as there are ranks", "[fake]") {
  const auto group = make_fake_group("plan", {.rank = 1, .size = 3, .data = FakeData::kRepeat});
  const Tensor all = full({6}, 9), part = full({2}, 9), mine = of({1, 2, 3, 4, 5, 6});
  all_gather(*group, std::vector{of({1, 2})}, std::vector{all});
  CHECK(values(all) == std::vector<float>{1, 2, 1, 2, 1, 2});
  reduce_scatter(*group, std::vector{mine}, std::vector{part});
  CHECK(values(part) == std::vector<float>{9, 12});
  all_reduce(*group, std::vector{part}, ReduceOp::kAverage);
  CHECK(values(part) == std::vector<float>{9, 12});
  reduce(*group, std::vector{part}, 0);
  CHECK(values(part) == std::vector<float>{9, 12});
  reduce(*group, std::vector{part}, 1, ReduceOp::kProduct);
  CHECK(values(part) == std::vector<float>{729, 1728});
  gather(*group, std::vector{of({1, 2})}, std::vector{all}, 1);
  CHECK(values(all) == std::vector<float>{1, 2, 1, 2, 1, 2});
  all_to_all(*group, std::vector{mine}, std::vector{full({4}, 9)},
             {.sent = {2, 3, 1}, .received = {1, 3, 0}});
}

TEST_CASE("a fake world of any size counts, and plans on the null device", "[fake]") {
  const auto group = make_fake_group("world", {.rank = 4095, .size = 4096});
  const auto before = distributed::collective_counters();
  const Tensor shard = Tensor::empty({10}, {.device = kNull}),
               whole = Tensor::empty({40960}, {.device = kNull});
  CHECK(all_gather(*group, std::vector{shard}, std::vector{whole}).is_done());
  const auto half = group->subgroup([] {
    std::vector<int> ranks;
    for (int r = 2048; r < 4096; ++r) ranks.push_back(r);
    return ranks;
  }());
  CHECK(half->rank() == 2047);
  CHECK(half->backend() == "fake");
  all_reduce(*half, std::vector{shard});
  const auto after = distributed::collective_counters();
  CHECK(after.collectives - before.collectives == 2);
  CHECK(after.bytes_sent - before.bytes_sent == 4095 * 40 + 2047 * 40);
}

TEST_CASE("work of a fake group is complete, and its continuation runs at once", "[fake]") {
  const DefaultDeviceScope host(kCpu);  // whose default stream is inline
  const auto group = make_fake_group("g", {.rank = 0, .size = 7});
  int calls = 0;
  const distributed::Work work = all_reduce(*group, std::vector{of({1})});
  CHECK(work.is_done());
  work.then([&calls] { ++calls; });
  CHECK(calls == 1);
}

TEST_CASE("a cost model makes collectives take time on their stream", "[fake]") {
  const DefaultDeviceScope host(kCpu);  // for its clock
  const auto cost = distributed::linear_cost({.latency_ms = 20, .gigabytes_per_s = 1e-3});
  const auto group = make_fake_group("g", {.rank = 0, .size = 3, .cost = cost});
  // 2 peers x 5000 floats = 40 kB: 40 ms at 1 MB/s.
  distributed::Collective call{.kind = CollectiveKind::kAllGather, .inputs = {full({5000}, 1)}};
  CHECK(cost(*group, call) == Approx(60));
  CHECK(cost(*make_fake_group("alone", {}), call) == 0);
  const DeviceStream comm = DeviceStream::create(kCpu, StreamKind::kQueued, "comm");
  const StreamGuard guard(comm);
  const auto begin = std::chrono::steady_clock::now();
  const auto work = all_gather(*group, std::vector{full({5000}, 1)}, std::vector{full({15000}, 1)});
  const std::chrono::duration<double, std::milli> issued = std::chrono::steady_clock::now() - begin;
  work.synchronize();
  const std::chrono::duration<double, std::milli> done = std::chrono::steady_clock::now() - begin;
  CHECK(issued.count() < 40);
  CHECK(done.count() >= 59);
  CHECK_THROWS_WITH(distributed::linear_cost({.gigabytes_per_s = 0}), Contains("bandwidth 0 GB/s"));
  CHECK_THROWS_WITH(distributed::linear_cost({.latency_ms = -1}), Contains("latency is -1 ms"));
}

TEST_CASE("what a fake group refuses", "[fake]") {
  CHECK_THROWS_WITH(make_fake_group("g", {.rank = 3, .size = 3}), Contains("rank 3 of 3"));
  CHECK_THROWS_WITH(make_fake_group("g", {.rank = 0, .size = 0}), Contains("rank 0 of 0"));
  const auto group = make_fake_group("g", {.rank = 0, .size = 3});
  CHECK_THROWS_WITH(all_gather(*group, std::vector{of({1})}, std::vector{of({1})}),
                    Contains("must have 3 times the elements"));
}

TEST_CASE("a fake group on a GPU adds up so many ranks and no more", "[fake]") {
  const distributed::FakeOptions repeats = {.rank = 0, .size = 257, .data = FakeData::kRepeat};
  const Tensor x = of({1, 2});
  const auto reduce_it = [&] { all_reduce(*make_fake_group("g", repeats), std::vector{x}); };
  if (default_device().is_cuda()) {
    CHECK_THROWS_WITH(reduce_it(), Contains("over 257 ranks") && Contains("at most 256"));
  } else {
    reduce_it();
    CHECK(values(x) == std::vector<float>{257, 514});
  }
}

TESSERA_RANK_TEST("corrupt flips a bit of one call's output on one rank", "[decorators]") {
  const auto group = distributed::corrupt(
      t.world().group(), {.kind = CollectiveKind::kAllReduce, .call = 2, .byte = 7, .mask = 0x80});
  for (int round = 0; round < 3; ++round) {
    const Tensor x = full({2}, 1);
    all_reduce(*group, std::vector{x});
    const float expected = static_cast<float>(t.size());
    t.check(x.to_vector<float>() == std::vector<float>{expected, round == 1 ? -expected : expected},
            "round {}: {}", round, x.str());
  }
  const auto far =
      distributed::corrupt(t.world().group(), {.kind = CollectiveKind::kAllReduce, .byte = 99});
  t.check_throws<InvalidArgument>("no output of this all_reduce has a byte 99",
                                  [&] { all_reduce(*far, std::vector{full({2}, 1)}); });
  const auto looking = distributed::call(
      t.world().group(),
      {.before = [&](const distributed::Collective& call) { outputs_of(t.group(), call); }});
  t.check_throws<InvalidArgument>("this barrier writes nothing on rank",
                                  [&] { barrier(*looking); });
  // The numbers of the two that were not issued are missing in a row; go on with the plain group.
  barrier(t.group());
}

TESSERA_RANK_TEST("a device that no transport carries is an error that names both",
                  "[decorators]") {
  const DefaultDeviceScope host(kCpu);
  // NCCL stands beside what carries the host's tensors; a rank alone needs none.
  const bool by_nccl = test_transport() == "nccl";
  const std::string backend = !by_nccl ? test_transport() : t.size() > 1 ? "local, nccl" : "local";
  t.check(t.group().backend() == backend, "backend {}", t.group().backend());
  const auto group = distributed::by_device({{DeviceType::kCpu, t.world().group()}});
  t.check(group->carries(DeviceType::kCpu) && !group->carries(DeviceType::kCuda), "carries");
  // No build can allocate there without a GPU; a tensor without elements can say that it is there.
  const Tensor far = Tensor::empty_named({3}, {.device = {DeviceType::kCuda, 0}},
                                         MemoryCategory::kOther, "far", /*materialized=*/false);
  for (distributed::ProcessGroup* each : {group.get(), &t.group()}) {
    if (each->carries(DeviceType::kCuda)) continue;
    t.check_throws<InvalidArgument>(
        fmt::format("these tensors are on cuda:0, and group \"world\" carries those of cpu ({})",
                    backend),
        [&] { all_reduce(*each, std::vector{far}); });
  }
  const Tensor x = full({3}, t.rank());
  all_reduce(*group, std::vector{x});
  t.check_equal(x, full({3}, t.size() * (t.size() - 1) / 2.0));
  const auto half = split(*group, t.rank() % 2);
  t.check(half->backend() == backend, "backend {}", half->backend());
  all_reduce(*half, std::vector{full({1}, 1)});
  barrier(*group);
}

TEST_CASE("a fake group that was given up, and its sub-groups, stay so", "[fake]") {
  const auto group = make_fake_group("g", {.rank = 1, .size = 3});
  const auto pair = group->subgroup({1, 2});
  barrier(*pair);
  group->abort("enough");
  group->abort("again");
  CHECK_THROWS_WITH(barrier(*group), Contains("barrier #1 of group \"g\" was aborted: rank 1 "
                                              "failed: enough"));
  CHECK_THROWS_AS(barrier(*pair), distributed::CollectiveAborted);
}

namespace {

class OnAll final : public distributed::Decorator {
 public:
  using Decorator::Decorator;
  bool carries(DeviceType) const override { return true; }
};

class OnHostOnly final : public distributed::Decorator {
 public:
  using Decorator::Decorator;
  bool carries(DeviceType type) const override { return type == DeviceType::kCpu; }
};

}  // namespace

TEST_CASE("what by_device refuses", "[fake]") {
  using distributed::by_device;
  const auto a = std::make_shared<OnHostOnly>(make_fake_group("g", {.rank = 0, .size = 3}));
  CHECK_THROWS_WITH(by_device({}), Contains("there is no group"));
  CHECK_THROWS_WITH(by_device({{DeviceType::kCpu, nullptr}}),
                    Contains("the group for cpu is null"));
  CHECK_THROWS_WITH(by_device({{DeviceType::kCuda, a}}),
                    Contains("group \"g\" (fake) does not carry cuda tensors"));
  const auto other = std::make_shared<OnAll>(make_fake_group("g", {.rank = 1, .size = 3}));
  CHECK_THROWS_WITH(by_device({{DeviceType::kCpu, a}, {DeviceType::kCuda, other}}),
                    Contains("the groups are not of the same ranks: rank 0 of 3 in \"g\", rank 1"));
}

}  // namespace tessera::testing
