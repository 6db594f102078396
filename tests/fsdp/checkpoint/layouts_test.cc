// What one layout of ranks saves, any other loads.

#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/launch/launch.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/state/state_model.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {
namespace {

using nn::optim::AdamW;

struct Layout {
  std::string name;
  int ranks;
  std::function<void(StateNet&, distributed::World&)> shard;
};

void as_one_group(StateNet& net, distributed::World& world) {
  fsdp::fully_shard(net, {.mesh = world.mesh()});
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"one rank without sharding", 1, [](StateNet&, distributed::World&) {}},
      {"2 ranks with replicas", 2,
       [](StateNet& net, distributed::World& world) {
         shard_net(net, {.mesh = world.mesh()}, Sharded::kReplicated);
       }},
      {"3 ranks, one module replicated", 3,
       [](StateNet& net, distributed::World& world) {
         shard_net(net, {.mesh = world.mesh()}, Sharded::kMixed);
       }},
      {"4 ranks, hybrid", 4,
       [](StateNet& net, distributed::World& world) {
         shard_net(net, {.mesh = distributed::hybrid_mesh(world, 2)});
       }},
      {"5 ranks, one group", 5, as_one_group},
      {"7 ranks, columns", 7,
       [](StateNet& net, distributed::World& world) {
         // Columns where all ranks get as many, else rows.
         const auto by_columns =
             [](const nn::Parameter& parameter) -> std::optional<distributed::Shard> {
           return distributed::Shard{
               .dim = parameter.shape().back() == 7 ? parameter.shape().ndim() - 1 : 0};
         };
         shard_net(net, {.mesh = world.mesh(), .shard_placement = by_columns});
       }},
      {"4 ranks, tensor parallelism inside sharding", 4,
       [](StateNet& net, distributed::World& world) {
         const distributed::DeviceMesh mesh({"dp", "tp"}, {2, 2}, world.group(), world.device());
         distributed::parallelize(
             net, mesh["tp"],
             {{"inner", distributed::ColwiseParallel{.output_layout = distributed::Replicate{}}},
              {"head", distributed::RowwiseParallel{.input_layout = distributed::Replicate{}}}});
         shard_net(net, {.mesh = mesh["dp"]});
       }},
      {"8 ranks, more than rows", 8,
       [](StateNet& net, distributed::World& world) { shard_net(net, {.mesh = world.mesh()}); }},
  };
  return all;
}

void on_ranks(const Layout& layout, const std::function<void(RankTest&, StateNet&)>& body) {
  const auto run = [&](distributed::World& world) {
    RankTest t(world);
    StateNet net;
    layout.shard(net, world);
    body(t, net);
    if (!t.failures().empty()) throw StateError(t.failures().front());
  };
  INFO(layout.name);
  CHECK(distributed::launch(0, nullptr,
                            {.ranks = layout.ranks, .mode = distributed::LaunchMode::kThreads}, run)
            .failure == "");
}

// What a run knows besides its model.
checkpoint::State state_of(RankTest& t, StateNet& net, AdamW& optimizer, nn::StateDict& values) {
  return {.group = t.world().group(), .model = &net, .optimizer = &optimizer, .values = &values};
}

struct Saved {
  std::string folder;
  nn::StateDict model, optimizer;  // full
};

Saved save_with(const Layout& layout, int number) {
  Saved saved{.folder = temporary_path("layouts_" + std::to_string(number), "step-2"),
              .model = {},
              .optimizer = {}};
  on_ranks(layout, [&](RankTest& t, StateNet& net) {
    nn::initialize(net, {.seed = 3});
    AdamW optimizer(net.parameters(), {.lr = 0.01});
    train(net, optimizer, 2);
    fill_(net.calls().tensor(), 5);
    nn::StateDict values;
    values.set("step", std::int64_t{2});
    values.set("curve", Tensor::from_vector<float>({1, 2, 3}, {3}));
    checkpoint::save(saved.folder, state_of(t, net, optimizer, values));
    const nn::StateDict model = fsdp::full_state_dict(net, {.mesh = t.world().mesh()});
    const nn::StateDict states = fsdp::full_optimizer_state(optimizer, {.mesh = t.world().mesh()});
    if (t.rank() == 0) {
      saved.model = model.clone();
      saved.optimizer = states.clone();
    }
  });
  return saved;
}

void load_with(const Layout& layout, const Saved& saved, bool initialized) {
  on_ranks(layout, [&](RankTest& t, StateNet& net) {
    if (initialized) nn::initialize(net, {.seed = 4});
    AdamW optimizer(net.parameters(), {.lr = 0.7});
    nn::StateDict values;
    values.set("step", std::int64_t{-1});
    const nn::LoadReport report =
        checkpoint::load(saved.folder, state_of(t, net, optimizer, values));
    t.check(report.missing.empty() && report.unexpected.empty(), "names are missing");
    t.check(values.integer("step") == 2, "step {}", values.integer("step"));
    t.check_equal(values.tensor("curve"), Tensor::from_vector<float>({1, 2, 3}, {3}));
    const nn::StateDict model = fsdp::full_state_dict(net, {.mesh = t.world().mesh()});
    const nn::StateDict states = fsdp::full_optimizer_state(optimizer, {.mesh = t.world().mesh()});
    if (t.rank() == 0) {
      check_same_state(t, model, saved.model, "model");
      check_same_state(t, states, saved.optimizer, "optimizer");
    }
    train(net, optimizer, 1, 2);  // the optimizer's tensors are its own
  });
}

TEST_CASE("what one layout saves, any other loads, bit for bit", "[checkpoint]") {
  int number = 0;
  for (const Layout& from : layouts()) {
    INFO("saved with " << from.name);
    const Saved saved = save_with(from, number++);
    REQUIRE(checkpoint::newest(saved.folder.substr(0, saved.folder.rfind('/'))) == saved.folder);
    for (const Layout& to : layouts()) load_with(to, saved, to.ranks % 2 == 0);
  }
}

}  // namespace
}  // namespace tessera::testing
