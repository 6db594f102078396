// World, mesh, nn's view of the mesh, and the decorators.
#include <catch2/catch.hpp>

#include <chrono>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/decorators.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/distributed/values.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::testing {

using distributed::Collective;
using distributed::CollectiveKind;
using distributed::DeviceMesh;

TESSERA_RANK_TEST("a world knows its rank, mesh and context", "[world]") {
  distributed::World& world = t.world();
  t.check(world.group()->name() == "world", "group {}", world.group()->name());
  const bool on_gpus = test_transport() == "nccl" || test_device().is_cuda();
  t.check(world.device().is_cuda() == on_gpus, "device {}", world.device().str());
  t.check(world.mesh().axes() == std::vector<std::string>{"data"} && world.mesh().ndim() == 1,
          "axes");
  t.check(world.mesh().size("data") == t.size() && world.mesh().coordinate("data") == t.rank(),
          "size and coordinate");
  t.check(world.mesh().group("data") == world.group(), "the axis has the world's group");
  t.check(world.mesh().device() == world.device(), "device of the mesh");
  t.check(world.context() == current_rank_context(), "the context is the thread's");
  t.check(world.context()->rank() == t.rank() && world.context()->world_size() == t.size(),
          "the context's rank");
  t.check(world.context()->threads() >= 1, "threads {}", world.context()->threads());
}

TESSERA_RANK_TEST("a world without a launcher is stopped by itself alone", "[world]") {
  distributed::World world(t.world().group(), kCpu, t.world().context());
  t.check(world.stop_signal() == 0, "nobody has asked");
  world.ask_to_stop(2);
  world.ask_to_stop(15);
  t.check(world.stop_signal() == 2, "the first one stays, got {}", world.stop_signal());
  t.check(t.world().stop_signal() == 0, "another world is not stopped");
}

TESSERA_RANK_TEST("a world of several nodes", "[world]") {
  const auto over_nodes = [&t](int ranks_per_node) {
    return distributed::World(t.world().group(), kCpu, t.world().context(), ranks_per_node);
  };
  t.check(t.world().nodes() == 1 && t.world().ranks_per_node() == t.size(), "one node");
  t.check(t.world().node_rank() == 0 && t.world().local_rank() == t.rank(), "on one node");
  const distributed::World apart = over_nodes(1);
  t.check(apart.nodes() == t.size() && apart.node_rank() == t.rank() && apart.local_rank() == 0,
          "a node for each rank");
  t.check(hybrid_mesh(apart).shape() == std::vector<int>{t.size(), 1}, "hybrid mesh over nodes");
  if (t.size() % 2 == 0) {
    const distributed::World pairs = over_nodes(2);
    t.check(pairs.nodes() == t.size() / 2 && pairs.ranks_per_node() == 2, "nodes of two");
    t.check(pairs.node_rank() == t.rank() / 2 && pairs.local_rank() == t.rank() % 2, "of two");
    t.check(hybrid_mesh(pairs).shape() == std::vector<int>{t.size() / 2, 2}, "hybrid mesh");
  }
  for (const int ranks : {t.size() + 1, -1}) {
    t.check_throws<InvalidArgument>(
        fmt::format("[World] rank {}: {} ranks cannot be divided among nodes of {}", t.rank(),
                    t.size(), ranks),
        [&] { (void)over_nodes(ranks); });
  }
}

TESSERA_RANK_TEST("a mesh refuses what it has not", "[world]") {
  const DeviceMesh mesh = t.world().mesh();
  t.check_throws<InvalidArgument>("no axis \"model\"; the mesh has: data",
                                  [&] { (void)mesh.size("model"); });
  t.check_throws<InvalidArgument>("the mesh is undefined", [&] { (void)DeviceMesh().ndim(); });
  t.check_throws<InvalidArgument>("needs a process group",
                                  [&] { DeviceMesh("data", nullptr, kCpu); });
  t.check_throws<InvalidArgument>("the group has 0 and -1",
                                  [&] { (void)mesh.with_group("data", nullptr); });
  t.check_throws<InvalidArgument>("the mesh is undefined",
                                  [&] { (void)distributed::make_mesh(DeviceMesh()); });
}

TESSERA_RANK_TEST("nn's mesh reduces and gathers over the group", "[world]") {
  const std::shared_ptr<const nn::Mesh> mesh = distributed::make_mesh(t.world().mesh());
  t.check(mesh->axes() == std::vector<std::string>{"data"}, "axes");
  t.check(mesh->size("data") == t.size() && mesh->rank("data") == t.rank(), "size and rank");
  const Tensor x = rank_tensor<double>(t.rank(), 0, 3);
  mesh->all_reduce(x, "data", nn::MeshReduce::kSum);
  t.check(x.to_vector<double>()[2] ==
              reduced_value<double>(t.size(), distributed::ReduceOp::kSum, 0, 2),
          "sum");
  const Tensor y = rank_tensor<double>(t.rank(), 1, 3);
  mesh->all_reduce(y, "data", nn::MeshReduce::kMax);
  t.check(y.to_vector<double>()[1] ==
              reduced_value<double>(t.size(), distributed::ReduceOp::kMax, 1, 1),
          "max");
  const Tensor rows = rank_tensor<float>(t.rank(), 2, 6).view({3, 2});
  const Tensor whole = mesh->all_gather(rows, "data");
  t.check(whole.shape() == Shape{3 * t.size(), 2}, "shape {}", whole.shape().str());
  t.check(whole.to_vector<float>().back() == rank_value<float>(t.size() - 1, 2, 5), "last element");
  t.check_throws<InvalidArgument>("0-d",
                                  [&] { (void)mesh->all_gather(Tensor::scalar(1), "data"); });
  t.check_throws<InvalidArgument>("no axis", [&] { (void)mesh->size("rows"); });
}

TESSERA_RANK_TEST("call sees each collective and may stand in its place", "[decorators]") {
  std::vector<std::string> seen;
  double after = 0;
  const auto watched = distributed::call(
      t.world().group(),
      {.before =
           [&](const Collective& call) {
             seen.push_back(fmt::format("{} {}", collective_name(call.kind), call.label.text));
           },
       .instead = [](const Collective& call) { return call.label.text == "dropped"; },
       .after =
           [&](const Collective& call) {
             if (call.kind == distributed::CollectiveKind::kBarrier) return;
             after = outputs_of(t.group(), call)[0].to_vector<float>()[0];
           }});
  t.check(watched->name() == "world" && watched->rank() == t.rank() && watched->size() == t.size(),
          "identity");
  const DeviceMesh mesh = t.world().mesh().with_group("data", watched);
  const Tensor x = rank_tensor<float>(t.rank(), 0, 2);
  all_reduce(*mesh.group("data"), std::vector{x}, distributed::ReduceOp::kSum, "dropped");
  t.check_equal(x, rank_tensor<float>(t.rank(), 0, 2), "kept back");
  all_reduce(*mesh.group("data"), std::vector{x}, distributed::ReduceOp::kSum, "passed");
  t.check(
      x.to_vector<float>()[0] == reduced_value<float>(t.size(), distributed::ReduceOp::kSum, 0, 0),
      "passed on");
  t.check(after == static_cast<double>(x.to_vector<float>()[0]), "after saw {}", after);
  barrier(*watched, "b");
  t.check(seen == std::vector<std::string>{"all_reduce dropped", "all_reduce passed", "barrier b"},
          "{} calls seen", seen.size());
}

TESSERA_RANK_TEST("a group and its decorated forms number collectives together", "[decorators]") {
  const DeviceStream side = DeviceStream::create(kCpu, StreamKind::kQueued, "side");
  std::vector<std::uint64_t> numbers;
  const auto note = [&](const Collective& call) { numbers.push_back(call.sequence); };
  const auto outer =
      distributed::call(distributed::call(t.world().group(), {.before = note}), {.before = note});
  const Tensor x = rank_tensor<float>(t.rank(), 0, 8), y = rank_tensor<float>(t.rank(), 1, 8);
  {
    StreamGuard guard(side);
    stream_sleep(side, 5);
    all_reduce(*outer, std::vector{x});
  }
  all_reduce(t.group(),
             std::vector{y});  // under way together with the other: equal numbers would mix them up
  side.synchronize();
  t.check(
      x.to_vector<float>()[7] == reduced_value<float>(t.size(), distributed::ReduceOp::kSum, 0, 7),
      "decorated");
  t.check(
      y.to_vector<float>()[7] == reduced_value<float>(t.size(), distributed::ReduceOp::kSum, 1, 7),
      "plain");
  t.check(numbers.size() == 2 && numbers[0] == numbers[1], "one number for one collective");
  const std::vector<distributed::FlightEntry> flights = distributed::recent_collectives();
  t.check(flights.end()[-1].sequence == flights.end()[-2].sequence + 1, "#{} after #{}",
          flights.end()[-1].sequence, flights.end()[-2].sequence);
}

TESSERA_RANK_TEST("delay sleeps ahead of one kind only", "[decorators]") {
  const DefaultDeviceScope host(kCpu);  // whose streams this is about
  const auto slow = distributed::delay(t.world().group(), CollectiveKind::kAllReduce, 30);
  const Tensor x = rank_tensor<float>(t.rank(), 0, 2);
  const auto start = std::chrono::steady_clock::now();
  all_reduce(*slow, std::vector{x});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  t.check(seconds >= 0.03, "took {} s", seconds);
  int sleeps = 0;
  const auto counted =
      distributed::call(t.world().group(), {.before = [&](const Collective&) { ++sleeps; }});
  broadcast(*distributed::delay(counted, CollectiveKind::kAllReduce, 1e6), std::vector{x}, 0);
  t.check(sleeps == 1, "passed on {} times", sleeps);
}

TESSERA_RANK_TEST("fail_at fails its collective where it is issued, not the group",
                  "[decorators]") {
  const DefaultDeviceScope host(kCpu);  // whose streams this is about
  const auto failing = distributed::fail_at(t.world().group(), 2);
  barrier(*failing);
  const Tensor x = rank_tensor<float>(t.rank(), 0, 2);
  try {
    all_reduce(*failing, std::vector{x}, distributed::ReduceOp::kSum, "layers.3");
    t.fail("fail_at did not throw");
  } catch (const CollectiveError& error) {
    t.check(std::string(error.what()).find("failed as asked") != std::string::npos, "{}",
            error.what());
    t.check(error.site().op == "all_reduce" && error.site().rank == t.rank() &&
                error.site().group == "world" && error.site().label == "layers.3" &&
                error.site().sequence >= 2,
            "site {} #{}", error.site().op, error.site().sequence);
  }
  barrier(*failing);
  t.check(distributed::recent_collectives().end()[-2].state == distributed::FlightState::kFailed,
          "flight state");
}

TEST_CASE("decorators refuse a null group", "[decorators]") {
  CHECK_THROWS_WITH(distributed::fail_at(nullptr, 1), Catch::Contains("the group is null"));
  CHECK_THROWS_AS(distributed::call(nullptr, {}), InvalidArgument);
}

TESSERA_RANK_TEST_WITH("fail_at on a queued stream takes the run down with its own text",
                       "[decorators]",
                       {.worlds = {2, 3},
                        .cpu_compute = StreamKind::kQueued,
                        .expect_failure = "rank 1: [all_reduce] all_reduce #1"}) {
  const auto group = t.rank() == 1 ? distributed::fail_at(t.world().group(), 1) : t.world().group();
  const Tensor x = rank_tensor<float>(t.rank(), 0, 2);
  all_reduce(*group, std::vector{x});
  current_stream(kCpu).synchronize();
}

TESSERA_RANK_TEST("every rank's text reaches every rank", "[support]") {
  const std::vector<std::string> texts =
      t.gather_text(std::string(static_cast<std::size_t>(t.rank()) * 3, 'x'));
  for (std::size_t r = 0; r < texts.size(); ++r)
    t.check(texts[r] == std::string(r * 3, 'x'), "text {}", r);
  t.check(t.check_same_on_all_ranks("equal", "text"), "equal texts");
}

}  // namespace tessera::testing
