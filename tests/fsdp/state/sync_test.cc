// sync_module_states: rank 0's values are copied to all ranks, before a model is sharded and after.
#include <catch2/catch.hpp>

#include "tessera/distributed/parameters/rank_equality.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/state/state_model.h"

namespace tessera::testing {
namespace {

// A different model on every rank, including integers and non-persistent buffers.
void make_different(StateNet& net, int rank) {
  nn::initialize(net, {.seed = static_cast<std::uint64_t>(100 + rank)});
  fill_(net.calls().tensor(), rank + 1);
}

// The state of rank 0.
nn::StateDict of_rank0() {
  StateNet net;
  make_different(net, 0);
  return nn::state_dict(net).clone();
}

TESSERA_RANK_TEST("sync_module_states makes all ranks' models that of rank 0", "[fsdp][sync]") {
  StateNet net, first;
  make_different(net, t.rank());
  make_different(first, 0);
  const std::uint64_t version = net.inner().weight().local().tensor().version();
  fsdp::sync_module_states(net, t.world().mesh());
  check_same_state(t, nn::state_dict(net), nn::state_dict(first), "synchronised");
  t.check_equal(net.table().tensor(), first.table().tensor(), "not persistent");
  t.check(net.inner().weight().local().tensor().version() > version, "the write does not count");
  distributed::assert_equal_across_ranks(t.group(), net);
  // fully_shard then shards equal models.
  shard_net(net, {.mesh = t.world().mesh()});
  check_same_state(t, fsdp::full_state_dict(net, {.rank0_only = false}), of_rank0(), "sharded");
}

TESSERA_RANK_TEST_WITH("sync_module_states goes over all axes of a mesh, each rank once",
                       "[fsdp][sync]", {.worlds = {4, 6}}) {
  const distributed::DeviceMesh mesh = distributed::hybrid_mesh(t.world(), t.size() / 2);
  StateNet net;
  make_different(net, t.rank());
  fsdp::sync_module_states(net, mesh);
  check_same_state(t, nn::state_dict(net), of_rank0(), "synchronised");
  // Along one axis only: from the first rank of each group along it.
  make_different(net, t.rank());
  fsdp::sync_module_states(net, mesh["shard"]);
  StateNet expected;
  make_different(expected, t.rank() / (t.size() / 2) * (t.size() / 2));
  check_same_state(t, nn::state_dict(net), nn::state_dict(expected), "along one axis");
}

// Replicas that differ: each part becomes that of the first replica.
TESSERA_RANK_TEST_WITH("sync_module_states after fully_shard goes along the replicas",
                       "[fsdp][sync]", {.worlds = {4, 6}}) {
  const distributed::DeviceMesh mesh = distributed::hybrid_mesh(t.world(), t.size() / 2);
  StateNet net;
  shard_net(net, {.mesh = mesh});
  nn::initialize(net, {.seed = 100});
  if (mesh.coordinate("replicate") != 0) {
    for (const nn::Parameter& parameter : net.parameters()) fill_(parameter.local().tensor(), 1337);
    fill_(net.scale().tensor(), 1337);
  }
  fill_(net.calls().tensor(), t.rank() + 1);
  fsdp::sync_module_states(net, mesh);
  check_same_state(t, fsdp::full_state_dict(net, {.rank0_only = false}), of_rank0(), "sharded");
  const Variable loss = mean(square(net(Variable(random_rows(3, 7, DType::kF64, 1)))));
  backward(loss);
  t.check_same_on_all_ranks(fmt::format("{:a}", loss.item<double>()), "loss");
}

TESSERA_RANK_TEST("sync_module_states of a replicated and of a split model", "[fsdp][sync]") {
  for (const Sharded how : {Sharded::kReplicated, Sharded::kMixed}) {
    StateNet net;
    make_different(net, 0);
    shard_net(net, {.mesh = t.world().mesh()}, how);
    const nn::StateDict expected = of_rank0();
    fill_(net.inner().weight().local().tensor(), t.rank() == 0 ? 3 : 7);
    if (how == Sharded::kMixed) fill_(net.head().weight().local().tensor(), 5);
    fsdp::sync_module_states(net, t.world().mesh());
    const nn::StateDict state = fsdp::full_state_dict(net, {.rank0_only = false});
    t.check_equal(state.tensor("inner.weight"), full({5, 7}, 3, {.dtype = DType::kF64}),
                  "replicas");
    t.check_equal(state.tensor("first.weight"), expected.tensor("first.weight"), "untouched");
    if (how == Sharded::kMixed) {
      t.check_equal(state.tensor("head.weight"), full({1, 5}, 5, {.dtype = DType::kF64}), "shards");
    }
  }
}

TESSERA_RANK_TEST("ranks without elements get rank 0's", "[fsdp][sync]") {
  StateNet net;
  if (t.rank() == 0) make_different(net, 0);
  fsdp::sync_module_states(net, t.world().mesh());
  check_same_state(t, nn::state_dict(net), of_rank0(), "synchronised");
  t.check(net.inner().weight().name() == "inner.weight", "named {}", net.inner().weight().name());
}

TESSERA_RANK_TEST("wrong calls of sync_module_states fail on all ranks", "[fsdp][sync]") {
  StateNet net;
  t.check_throws<InvalidArgument>("no mesh was given", [&] { fsdp::sync_module_states(net, {}); });
  t.check_throws<StateError>(
      "the ranks that give their state to others have no elements for \"first.weight\", ",
      [&] { fsdp::sync_module_states(net, t.world().mesh()); });
  t.check(!net.inner().weight().is_materialized(), "made from nothing");
  if (t.size() == 1) return;
  // The last rank has another dtype.
  StateNet other(t.rank() + 1 == t.size() ? DType::kF32 : DType::kF64);
  nn::initialize(other, {.seed = static_cast<std::uint64_t>(t.rank())});
  const nn::StateDict before = nn::state_dict(other).clone();
  t.check_throws<InvalidArgument>(
      "StateNet is another model on some ranks: \"first.weight\" f32 [7, 7] where rank 0 has "
      "\"first.weight\" f64 [7, 7]; ",
      [&] { fsdp::sync_module_states(other, t.world().mesh()); });
  check_same_state(t, nn::state_dict(other), before, "after a call that failed");
}

// Every rank that sends to its replicas must be materialized, not only rank 0.
TESSERA_RANK_TEST_WITH("the first replica of every part needs elements", "[fsdp][sync]",
                       {.worlds = {4}}) {
  const distributed::DeviceMesh mesh = distributed::hybrid_mesh(t.world(), 2);
  StateNet net;
  shard_net(net, {.mesh = mesh});
  if (t.rank() == 0) nn::initialize(net, {.seed = 1});
  t.check_throws<StateError>("have no elements for \"first.weight\"",
                             [&] { fsdp::sync_module_states(net, mesh); });
}

}  // namespace
}  // namespace tessera::testing
