// Bytes of every way to shard and to train, compared with the arithmetic.

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <string>

#include "tessera/fsdp/replicate.h"
#include "tessera/nn/optim/step_in_backward.h"
#include "tessera/tests/fsdp/memory/memory_run.h"

namespace tessera::testing {
namespace {

constexpr int kGroups = 4;

void replicate_chain(Chain& chain, const fsdp::ReplicateOptions& options) {
  for (const auto& block : chain.blocks()) fsdp::replicate(*block, options);
  fsdp::replicate(chain, options);
}
void shard_all(Chain& chain, const fsdp::FullyShardOptions& options) {
  for (const auto& block : chain.blocks()) fsdp::fully_shard(*block, options);
  fsdp::fully_shard(chain, options);
}

// ---- two axes -----------------------------------------------------------------------------------

TESSERA_RANK_TEST_WITH("fsdp memory: over two axes, what the shard axis alone takes", "[fsdp]",
                       ({.worlds = {1, 2, 4, 6}})) {
  for (const int replicas : {1, 2}) {
    if (t.size() % replicas != 0) continue;
    const distributed::DeviceMesh mesh({"replicate", "shard"}, {replicas, t.size() / replicas},
                                       t.world().group(), t.world().device());
    const Cut cut = {.ranks = t.size() / replicas, .rank = mesh.coordinate("shard")};
    check_flat_chain(t, fmt::format("{} replicas", replicas),
                     {.group = flat_group(cut), .groups = kGroups},
                     [&](Chain& model) { shard_all(model, {.mesh = mesh}); });
  }
}

TESSERA_RANK_TEST_WITH("fsdp memory: an optimizer over the replicas as well stays in the bounds",
                       "[fsdp]", ({.worlds = {4, 6}})) {
  const int shards = t.size() / 2;
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, shards}, t.world().group(),
                                     t.world().device());
  // local() is sharded over all ranks; for each group one chunk, which the replicas share, is kept.
  const GroupBytes local = flat_group({.ranks = t.size()});
  const GroupBytes chunk = flat_group({.ranks = shards});
  PeakReader reader(t);
  Chain model(flat_chain(kGroups));
  shard_all(model, {.mesh = mesh, .shard_optimizer_over_replicas = true});
  nn::initialize(model, {.seed = 1});
  t.check(reader.now() <= kGroups * local.shard, "{} bytes of shards, at most {} expected",
          reader.now(), kGroups * local.shard);
  for (int step = 0; step < 2; ++step) {
    reader.start();
    const Variable loss = chain_loss(t, model);
    // A chunk is rounded up to a multiple of the replicas.
    const std::int64_t rounding = kGroups * 2 * 2 * kChainWidth * 8;
    std::int64_t bound = kGroups * (local.shard + chunk.shard) + 2 * chunk.gathered + rounding;
    t.check(reader.peak() <= bound, "forward: {} bytes, bound {}", reader.peak(), bound);
    reader.start();
    backward(loss);
    bound += 2 * chunk.slots + 2 * chunk.grads + kGroups * local.grads;
    t.check(reader.peak() <= bound, "backward: {} bytes, bound {}", reader.peak(), bound);
    drop_gradients(model);
    t.check(reader.now() <= kGroups * local.shard, "{} bytes remain after a step", reader.now());
  }
}

// ---- replicate ----------------------------------------------------------------------------------

TESSERA_RANK_TEST("replicate memory: parameters and gradients once each, no second copy",
                  "[fsdp]") {
  const GroupBytes whole = flat_group({.ranks = 1});
  PeakReader reader(t);
  Chain model(flat_chain(kGroups));
  replicate_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const std::int64_t parameters = kGroups * whole.shard;
  for (int step = 0; step < 3; ++step) {
    reader.start();
    const Variable loss = chain_loss(t, model);
    t.check(reader.peak() == parameters, "forward: {} bytes, expected {}", reader.peak(),
            parameters);
    reader.start();
    backward(loss);
    const std::int64_t expected = parameters + kGroups * whole.slots;
    t.check(reader.peak() == expected, "backward: {} bytes, expected {}", reader.peak(), expected);
    t.check(reader.now() == expected, "after backward: {} bytes, expected {}", reader.now(),
            expected);
    drop_gradients(model);
    t.check(reader.now() == parameters, "after the step: {} bytes, expected {}", reader.now(),
            parameters);
  }
}

TESSERA_RANK_TEST("replicate memory: gradients that add up take one group's more", "[fsdp]") {
  const GroupBytes whole = flat_group({.ranks = 1});
  PeakReader reader(t);
  Chain model(flat_chain(kGroups));
  replicate_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  backward(chain_loss(t, model));
  reader.start();
  backward(chain_loss(t, model));
  // The group being filled, and those whose reduction is in flight.
  const std::int64_t bound = kGroups * (whole.shard + whole.slots) + 2 * whole.slots;
  t.check(reader.peak() <= bound, "{} bytes, bound {}", reader.peak(), bound);
}

// ---- dtypes and offload -------------------------------------------------------------------------

TESSERA_RANK_TEST("fsdp memory: values and slots in f32 beside shards in f64", "[fsdp]") {
  Cut cut = world_cut(t);
  cut.values = cut.gradients = DType::kF32;
  const GroupBytes group = flat_group(cut);
  for (const int buffers : {1, 0}) {
    // One rank keeps its values, as they were cast, also between steps.
    const bool stays = t.size() == 1;
    check_flat_chain(t, "f32 values",
                     {.group = group,
                      .groups = kGroups,
                      .told_to_stay = stays,
                      .stays_between_steps = stays,
                      .reduce_buffers = buffers,
                      .late = stays ? buffers * group.sums : 0},
                     [&](Chain& model) {
                       shard_all(model, {.mesh = t.world().mesh(),
                                         .mixed_precision = {.param_dtype = DType::kF32}});
                       fsdp::of(model).set_reduce_scatter_max_input_buffers(buffers);
                     });
  }
}

TESSERA_RANK_TEST("fsdp memory: values in f32, slots in f64", "[fsdp]") {
  Cut cut = world_cut(t);
  cut.values = DType::kF32;
  check_flat_chain(t, "f32 values, f64 slots",
                   {.group = flat_group(cut),
                    .groups = kGroups,
                    .told_to_stay = t.size() == 1,
                    .stays_between_steps = t.size() == 1},
                   [&](Chain& model) {
                     shard_all(model, {.mesh = t.world().mesh(),
                                       .mixed_precision = {.param_dtype = DType::kF32,
                                                           .reduce_dtype = DType::kF64}});
                   });
}

// On a GPU gradients are copied to the host, and backward's peak may exceed the formula by the
// copies of one group in flight: an upper bound, not analysed further.
TESSERA_RANK_TEST("fsdp memory: offloaded, also where the host is the device", "[fsdp]") {
  Cut cut = world_cut(t);
  cut.offload = true;
  const GroupBytes group = flat_group(cut);
  const std::int64_t late = default_device().is_cpu() ? 0 : group.sums + group.grads;
  check_flat_chain(t, "offloaded", {.group = group, .groups = kGroups, .late = late},
                   [&](Chain& model) {
                     shard_all(model, {.mesh = t.world().mesh(), .offload = fsdp::CpuOffload{}});
                   });
}

// ---- schedules ----------------------------------------------------------------------------------

TESSERA_RANK_TEST("fsdp memory: gradients that wait take their slots", "[fsdp]") {
  const GroupBytes block = flat_group(world_cut(t));
  const std::int64_t shards = kGroups * block.shard;
  PeakReader reader(t);
  Chain model(flat_chain(kGroups));
  shard_all(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const fsdp::Handle root = fsdp::of(model);
  for (int step = 0; step < 2; ++step) {
    reader.start();
    root.set_requires_gradient_sync(false);
    backward(chain_loss(t, model));
    std::int64_t expected = shards + 2 * block.gathered + kGroups * block.slots;
    t.check(reader.peak() == expected, "first pass: {} bytes, expected {}", reader.peak(),
            expected);
    t.check(reader.now() == shards + kGroups * block.slots, "between: {} bytes, expected {}",
            reader.now(), shards + kGroups * block.slots);
    reader.start();
    root.set_requires_gradient_sync(true);
    backward(chain_loss(t, model));
    // Of the first reduction; every later one frees more than it allocates.
    if (block.scatters) expected += block.grads;
    t.check(reader.peak() == expected, "second pass: {} bytes, expected {}", reader.peak(),
            expected);
    t.check(reader.now() == shards + kGroups * block.grads, "after: {} bytes, expected {}",
            reader.now(), shards + kGroups * block.grads);
    drop_gradients(model);
    t.check(reader.now() == shards, "{} bytes remain", reader.now() - shards);
  }
}

// 4B + N + S and one group's reduced gradient: these never exist together.
TESSERA_RANK_TEST("fsdp memory: an optimizer in backward holds one group's gradients", "[fsdp]") {
  const GroupBytes block = flat_group(world_cut(t));
  const std::int64_t shards = kGroups * block.shard;
  PeakReader reader(t);
  Chain model(flat_chain(kGroups));
  shard_all(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd);
  const nn::optim::StepInBackward in_backward(sgd);
  for (int step = 0; step < 3; ++step) {
    const Variable loss = chain_loss(t, model);
    reader.start();
    backward(loss);
    const std::int64_t reading = block.scatters ? std::max(block.slots, block.grads) : 0;
    const std::int64_t expected = shards + 2 * block.gathered + block.slots + reading;
    t.check(reader.peak() == expected, "step {}: {} bytes, expected {}", step, reader.peak(),
            expected);
    t.check(reader.now() == shards, "step {}: {} bytes remain", step, reader.now() - shards);
  }
}

}  // namespace
}  // namespace tessera::testing
