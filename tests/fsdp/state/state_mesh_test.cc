// Full and sharded states over two and three axes: HSDP, with the optimizer sharded over all ranks,
// and tensor parallelism below, including packed projections, whose specs have no cuts.
#include <catch2/catch.hpp>

#include <functional>

#include "tessera/distributed/tensor_parallel/tensor_parallel.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/state/state_model.h"

namespace tessera::testing {
namespace {

using distributed::ColwiseParallel;
using distributed::DeviceMesh;
using distributed::RowwiseParallel;

// first and tied are replicated, inner is row-wise, head is column-wise.
const distributed::ParallelPlan kPlan = {
    {"inner", ColwiseParallel{.output_layout = distributed::Replicate{}}},
    {"head", RowwiseParallel{.input_layout = distributed::Replicate{}}}};

// Rank 0's full state of `net` is that of the unsharded reference; it is loaded into `other`; and
// the sharded state dict contains the shards.
void check_states(RankTest& t, StateNet& net, StateNet& other) {
  StateNet plain;
  nn::initialize(net, {.seed = 3});
  nn::initialize(plain, {.seed = 3});
  nn::StateDict expected = nn::state_dict(plain).clone();
  check_same_state(t, fsdp::full_state_dict(net, {.rank0_only = false}), expected, "on all ranks");
  const nn::StateDict first = fsdp::full_state_dict(net);
  t.check((t.rank() == 0) == !first.empty(), "{} entries", first.size());
  if (t.rank() == 0) check_same_state(t, first, expected, "on rank 0");
  for (const auto& [name, parameter] : net.named_parameters()) {
    t.check(nn::state_dict(net).tensor(name).storage() == parameter.local().tensor().storage(),
            "{} is a copy", name);
  }
  fsdp::load_full_state_dict(other, first, {.seed = 3});
  check_same_state(t, nn::state_dict(other), nn::state_dict(net), "loaded");
  fill_(expected.tensor("inner.weight"), 2);
  fsdp::load_full_state_dict(other, t.rank() == 0 ? expected : nn::StateDict());
  const Tensor& local = other.inner().weight().local().tensor();
  t.check_equal(local, full_like(local, 2), "in place");
}

// A run continues bit for bit from the full states of model and optimizer.
void check_continues(RankTest& t, StateNet& net, StateNet& next) {
  nn::initialize(net, {.seed = 3});
  nn::optim::SGD sgd(net.parameters(), kSgd), next_sgd(next.parameters(), kSgd);
  train(net, sgd, 2);
  fsdp::load_full_state_dict(next, fsdp::full_state_dict(net), {.seed = 3});
  fsdp::load_full_optimizer_state(next_sgd, fsdp::full_optimizer_state(sgd));
  train(net, sgd, 2, 2);
  train(next, next_sgd, 2, 2);
  check_same_state(t, nn::state_dict(next), nn::state_dict(net), "two steps later");
  check_same_state(t, next_sgd.state_dict(), sgd.state_dict(), "its optimizer");
}

// Runs the checks with two models each, sharded alike.
void check_all(RankTest& t, const std::function<void(StateNet&)>& shard) {
  {
    StateNet net, other;
    shard(net);
    shard(other);
    check_states(t, net, other);
  }
  StateNet net, next;
  shard(net);
  shard(next);
  check_continues(t, net, next);
}

TESSERA_RANK_TEST_WITH("states over replicas and shards", "[fsdp][state]", {.worlds = {4, 6}}) {
  const DeviceMesh mesh = distributed::hybrid_mesh(t.world(), t.size() / 2);
  check_all(t, [&](StateNet& net) { shard_net(net, {.mesh = mesh}); });
  check_all(t, [&](StateNet& net) {
    shard_net(net, {.mesh = mesh, .shard_optimizer_over_replicas = true});
  });
}

TESSERA_RANK_TEST_WITH("states of parameters cut along their longest dim", "[fsdp][state]",
                       {.worlds = {1, 2, 4}}) {
  // Columns if their number is divisible by the ranks, else rows.
  const auto by_columns = [&t](const nn::Parameter& p) -> std::optional<distributed::Shard> {
    const bool fits = p.shape().ndim() == 2 && p.shape()[1] % t.size() == 0;
    return distributed::Shard{.dim = fits ? 1 : 0};
  };
  StateNet net, other;
  for (StateNet* each : {&net, &other})
    shard_net(*each, {.mesh = t.world().mesh(), .shard_placement = by_columns});
  check_states(t, net, other);
}

TESSERA_RANK_TEST_WITH("states over data and tensor parallelism", "[fsdp][state]",
                       {.worlds = {4, 6}}) {
  const DeviceMesh mesh({"dp", "tp"}, {t.size() / 2, 2}, t.world().group(), t.world().device());
  check_all(t, [&](StateNet& net) {
    distributed::parallelize(net, mesh["tp"], kPlan);
    shard_net(net, {.mesh = mesh["dp"]});
  });
  check_all(t, [&](StateNet& net) {
    distributed::parallelize(net, mesh["tp"], kPlan);
    shard_net(net, {.mesh = mesh["dp"]}, Sharded::kReplicated);
  });
}

TESSERA_RANK_TEST_WITH("states over replicas, shards and tensor parallelism", "[fsdp][state]",
                       {.worlds = {8}}) {
  const DeviceMesh mesh({"rep", "shard", "tp"}, {2, 2, 2}, t.world().group(), t.world().device());
  check_all(t, [&](StateNet& net) {
    distributed::parallelize(net, mesh["tp"], kPlan);
    shard_net(net, {.mesh = mesh.submesh({"rep", "shard"})});
  });
}

// Attention by heads, whose packed projections are three row ranges of one parameter.
class Attending final : public nn::Layer<Attending> {
 public:
  Attending() : attention_({.dim = 12, .heads = 6, .kv_heads = 3, .dtype = DType::kF64}) {
    register_module("attention", attention_);
  }
  Variable forward(const Variable& x) { return attention_(x, x, x).output; }

 private:
  nn::MultiheadAttention attention_;
};

TESSERA_RANK_TEST_WITH("states of packed projections under tensor parallelism", "[fsdp][state]",
                       {.worlds = {3, 6, 9}}) {
  const DeviceMesh mesh({"dp", "tp"}, {t.size() / 3, 3}, t.world().group(), t.world().device());
  const auto shard = [&](Attending& model) {
    distributed::parallelize(model, mesh["tp"], {{"attention", distributed::HeadParallel{}}});
    fsdp::fully_shard(model, {.mesh = mesh["dp"]});
  };
  Attending net, plain, other;
  shard(net);
  shard(other);
  nn::initialize(net, {.seed = 3});
  nn::initialize(plain, {.seed = 3});
  const nn::StateDict state = fsdp::full_state_dict(net, {.rank0_only = false});
  check_same_state(t, state, nn::state_dict(plain), "full");
  fsdp::load_full_state_dict(other, state);
  check_same_state(t, nn::state_dict(other), nn::state_dict(net), "loaded");
  const Variable x(random_rows(4, 12, DType::kF64, 1));
  const Variable batch(x.tensor().view({1, 4, 12}));
  t.check_close(other(batch).tensor(), plain(batch).tensor(), {1e-12, 1e-12}, "forward");
}

}  // namespace
}  // namespace tessera::testing
