// full_state_dict: full tensors of a sharded model, on rank 0 or on all ranks.
#include "tessera/fsdp/state/state.h"

#include <catch2/catch.hpp>

#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/state/state_model.h"

namespace tessera::testing {
namespace {

// The state of the unsharded model.
nn::StateDict plain_state(DType dtype = DType::kF64) {
  StateNet plain(dtype);
  nn::initialize(plain, {.seed = 3});
  return nn::state_dict(plain).clone();
}

TESSERA_RANK_TEST("full_state_dict is the unsharded model's, on rank 0 or on all",
                  "[fsdp][state]") {
  const nn::StateDict expected = plain_state();
  for (const Sharded how : {Sharded::kFully, Sharded::kReplicated, Sharded::kMixed}) {
    StateNet net;
    shard_net(net, {.mesh = t.world().mesh()}, how);
    nn::initialize(net, {.seed = 3});
    const nn::StateDict all = fsdp::full_state_dict(net, {.rank0_only = false});
    check_same_state(t, all, expected, "on all ranks");
    const nn::StateDict first = fsdp::full_state_dict(net);
    if (t.rank() == 0) check_same_state(t, first, expected, "on rank 0");
    t.check(t.rank() == 0 || first.empty(), "rank {} has {} entries", t.rank(), first.size());
    // The state has memory of its own: later writes do not change it.
    for (const nn::Parameter& parameter : net.parameters()) fill_(parameter.local().tensor(), 9);
    fill_(net.scale().tensor(), 9);
    check_same_state(t, all, expected, "after the model changed");
  }
}

TESSERA_RANK_TEST("full_state_dict is in the stored dtype, whatever the model computes in",
                  "[fsdp][state]") {
  StateNet net(DType::kF32);
  shard_net(net, {.mesh = t.world().mesh(),
                  .reshard_after_forward = false,
                  .mixed_precision = {.param_dtype = DType::kBF16,
                                      .reduce_dtype = DType::kF32,
                                      .buffer_dtype = DType::kBF16}});
  nn::initialize(net, {.seed = 3});
  StateNet plain(DType::kF32);
  nn::initialize(plain, {.seed = 3});
  // Also while values are gathered in bf16.
  net(Variable(random_rows(2, 7, DType::kF32, 1)));
  const nn::StateDict state = fsdp::full_state_dict(net, {.rank0_only = false});
  for (const auto& [name, parameter] : plain.named_parameters()) {
    t.check_equal(state.tensor(name), parameter.local().tensor(), name);
  }
  t.check(net.scale().dtype() == DType::kBF16, "the buffer computes in {}",
          dtype_name(net.scale().dtype()));
  t.check(state.tensor("scale").dtype() == DType::kF32, "scale is {}",
          dtype_name(state.tensor("scale").dtype()));
}

TESSERA_RANK_TEST("full_state_dict of a trained model goes into an unsharded one",
                  "[fsdp][state]") {
  StateNet net, plain;
  shard_net(net, {.mesh = t.world().mesh()});
  for (nn::Module* model : std::vector<nn::Module*>{&net, &plain})
    nn::initialize(*model, {.seed = 3});
  nn::optim::SGD sgd(net.parameters(), kSgd), plain_sgd(plain.parameters(), kSgd);
  train(net, sgd, 3);
  train(plain, plain_sgd, 3);
  StateNet loaded;
  nn::load_state_dict(loaded, fsdp::full_state_dict(net, {.rank0_only = false}));
  for (std::size_t i = 0; i < loaded.parameters().size(); ++i) {
    t.check_close(loaded.parameters()[i].local().tensor(), plain.parameters()[i].local().tensor(),
                  {1e-12, 1e-12}, plain.parameters()[i].name());
  }
}

// One full tensor at a time besides the kept ones; other ranks keep nothing.
TESSERA_RANK_TEST("full_state_dict needs one whole tensor beside what it keeps", "[fsdp][state]") {
  const std::int64_t width = 64, depth = 6, bytes = width * width * 8;
  Chain model({.widths = std::vector<std::int64_t>(depth + 1, width), .classes = 0});
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  MemoryCounters& memory = t.world().context()->memory();
  const std::int64_t before = memory.current().total();
  memory.reset_peak();
  const nn::StateDict state = fsdp::full_state_dict(model);
  const std::int64_t kept = t.rank() == 0 ? depth * bytes : 0;
  // Ranks send parts of equal size, so a full tensor has up to one extra row per rank.
  const std::int64_t padding = kept / width * ((t.size() - width % t.size()) % t.size());
  const std::int64_t peak = memory.peak_total() - before;
  const std::int64_t kept_now = memory.current().total() - before;
  const std::int64_t slack = padding + 16 * 1024;  // biases, texts
  t.check(kept_now >= kept && kept_now <= kept + slack, "{} bytes kept, expected {}", kept_now,
          kept);
  // The received full tensor, this rank's part of it, and that part as it is sent.
  t.check(peak <= kept + 3 * bytes + slack, "peak of {} bytes, {} kept, a tensor has {}", peak,
          kept, bytes);
}

TESSERA_RANK_TEST("full_state_dict keeps what hooks put in, and finds what they renamed",
                  "[fsdp][state]") {
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 3});
  net.inner().state_dict_hooks().after_save.add(
      [](nn::Module&, nn::StateDict& state, const std::string& prefix) {
        const Tensor weight = state.tensor(prefix + "weight");
        state.erase(prefix + "weight");
        state.set(prefix + "kernel", weight);
        state.set(prefix + "version", std::int64_t{2});
      });
  const nn::StateDict state = fsdp::full_state_dict(net, {.rank0_only = false});
  t.check_equal(state.tensor("inner.kernel"), plain_state().tensor("inner.weight"), "renamed");
  t.check(!state.contains("inner.weight") && state.integer("inner.version") == 2,
          "the hook's names");
}

TESSERA_RANK_TEST("what nobody shards is in the full state as rank 0 has it", "[fsdp][state]") {
  StateNet net;
  shard_net(net,
            {.mesh = t.world().mesh(),
             .ignored_parameters = {net.inner().bias()},
             .ignored_modules = {&net.head()}},
            Sharded::kFully);
  nn::initialize(net, {.seed = 3});
  check_same_state(t, fsdp::full_state_dict(net, {.rank0_only = false}), plain_state(),
                   "all alike");
  // Different values on each rank: a load from rank 0 makes them equal.
  for (const nn::Parameter& parameter : {net.inner().bias(), net.head().weight()})
    fill_(parameter.local().tensor(), 10 + t.rank());
  const nn::StateDict state = fsdp::full_state_dict(net);
  fsdp::load_full_state_dict(net, state);
  for (const nn::Parameter& parameter : {net.inner().bias(), net.head().weight()}) {
    const Tensor& local = parameter.local().tensor();
    t.check_equal(local, full_like(local, 10), parameter.name());
  }
}

// A full state has only one entry for a parameter with different values under one name on the
// ranks.
TESSERA_RANK_TEST("of experts under one name a full state has rank 0's", "[fsdp][state]") {
  StateNet net;
  const distributed::DeviceMesh alone("own", t.group().subgroup({t.rank()}), t.world().device());
  fsdp::fully_shard(net.inner(), {.mesh = alone});
  fsdp::fully_shard(net, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 3});
  fill_(net.inner().weight().local().tensor(), 10 + t.rank());
  const nn::StateDict state = fsdp::full_state_dict(net);
  if (t.rank() == 0) {
    const Tensor& expert = state.tensor("inner.weight");
    t.check_equal(expert, full_like(expert, 10), "rank 0's");
    t.check_equal(state.tensor("first.weight"), plain_state().tensor("first.weight"), "the rest");
  }
  // The sharded state dict has each rank's own.
  t.check_equal(nn::state_dict(net).tensor("inner.weight"),
                full({5, 7}, 10 + t.rank(), {.dtype = DType::kF64}), "this rank's");
}

TESSERA_RANK_TEST_WITH("full states on a queued stream", "[fsdp][state]",
                       {.cpu_compute = StreamKind::kQueued}) {
  StateNet net, next;
  for (StateNet* each : {&net, &next}) shard_net(*each, {.mesh = t.world().mesh()});
  nn::initialize(net, {.seed = 3});
  nn::optim::SGD sgd(net.parameters(), kSgd), next_sgd(next.parameters(), kSgd);
  train(net, sgd, 2);
  fsdp::load_full_state_dict(next, fsdp::full_state_dict(net), {.seed = 3});
  fsdp::load_full_optimizer_state(next_sgd, fsdp::full_optimizer_state(sgd));
  train(net, sgd, 2, 2);
  train(next, next_sgd, 2, 2);
  check_same_state(t, nn::state_dict(next), nn::state_dict(net), "two steps later");
}

TESSERA_RANK_TEST("full_state_dict of a model without elements says what has none",
                  "[fsdp][state]") {
  StateNet net;
  shard_net(net, {.mesh = t.world().mesh()});
  t.check_throws<StateError>("call nn::initialize(model)", [&] { fsdp::full_state_dict(net); });
}

}  // namespace
}  // namespace tessera::testing
