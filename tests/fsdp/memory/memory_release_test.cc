// All memory is freed, and at once: after a step, when a model is destroyed, after exceptions in
// any place, and after aborting an iteration.

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <string>

#include "tessera/autograd/grad_mode.h"
#include "tessera/distributed/decorators.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/tests/fsdp/memory/memory_run.h"
#include "tessera/tests/support/fsdp/kept_values.h"

namespace tessera::testing {
namespace {

/// Every way to shard a chain that works in any world.
struct Way {
  const char* name;
  bool replicate = false;
  fsdp::FullyShardOptions options = {.mesh = {}};
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {.name = "fully_shard"},
      {.name = "kept", .options = {.mesh = {}, .reshard_after_forward = false}},
      {.name = "f32 values",
       .options = {.mesh = {}, .mixed_precision = {.param_dtype = DType::kF32}}},
      {.name = "offload", .options = {.mesh = {}, .offload = fsdp::CpuOffload{}}},
      {.name = "replicate", .replicate = true}};
  return all;
}

void shard(Chain& model, const Way& way, const distributed::DeviceMesh& mesh) {
  fsdp::FullyShardOptions options = way.options;
  options.mesh = mesh;
  const auto wrap = [&](nn::Module& module) {
    if (!way.replicate) return fsdp::fully_shard(module, options);
    return fsdp::replicate(module, {.mesh = mesh});
  };
  for (const auto& block : model.blocks()) wrap(*block);
  wrap(model);
}

TESSERA_RANK_TEST("fsdp memory: all of it goes back with the model, whatever it was doing",
                  "[fsdp]") {
  using Doing = std::function<void(Chain&)>;
  const std::vector<std::pair<const char*, Doing>> moments = {
      {"never run", [](Chain&) {}},
      {"after a forward", [&](Chain& model) { chain_loss(t, model); }},
      {"after a backward", [&](Chain& model) { backward(chain_loss(t, model)); }},
      {"with gradients that wait",
       [&](Chain& model) {
         fsdp::of(model).set_requires_gradient_sync(false);
         backward(chain_loss(t, model));
       }},
      {"opened by hand", [&](Chain& model) {
         fsdp::of(*model.blocks().front()).unshard();
         fsdp::of(*model.blocks().back()).unshard({.async = true});
       }}};
  for (const Way& way : ways()) {
    for (const auto& [moment, doing] : moments) {
      const MemoryReading before = t.world().context()->memory().current();
      {
        Chain model(flat_chain(3));
        shard(model, way, t.world().mesh());
        nn::initialize(model, {.seed = 1});
        doing(model);
      }
      const MemoryReading after = t.world().context()->memory().current();
      t.check(after.total() == before.total(), "{}, {}: {} bytes remain", way.name, moment,
              after.total() - before.total());
    }
  }
}

// Sharding an unsharded model leaves each rank its part and nothing else.
TESSERA_RANK_TEST("fsdp memory: a materialised model is cut down at once", "[fsdp]") {
  PeakReader reader(t);
  auto model = std::make_unique<Chain>(flat_chain(4));
  nn::initialize(*model, {.seed = 1});
  const std::int64_t whole = 4 * flat_group({.ranks = 1}).shard;
  t.check(reader.now() == whole, "{} bytes before, expected {}", reader.now(), whole);
  reader.start();
  shard_chain(*model, {.mesh = t.world().mesh()});
  const GroupBytes block = flat_group(world_cut(t));
  t.check(reader.now() == 4 * block.shard, "{} bytes after, expected {}", reader.now(),
          4 * block.shard);
  t.check(reader.peak() <= whole + block.shard, "{} bytes at the peak, bound {}", reader.peak(),
          whole + block.shard);
  model.reset();
  t.check(reader.now() == 0, "{} bytes remain", reader.now());
}

/// Collectives of a kind and label throw while `fail` is set, once.
std::shared_ptr<distributed::ProcessGroup> failing_group(RankTest& t, bool& fail,
                                                         distributed::CollectiveKind kind,
                                                         const std::string& label) {
  return distributed::call(t.world().group(),
                           {.before = [&fail, kind, label](const distributed::Collective& call) {
                             if (!fail || call.kind != kind || call.label.text != label) return;
                             fail = false;
                             throw OutOfMemory("on purpose");
                           }});
}

/// Only shards are left, no gradients are pending, and the next step is correct.
void check_recovery(RankTest& t, const std::string& what, Chain& model, std::int64_t shards,
                    const PeakReader& reader) {
  drop_gradients(model);
  t.check(reader.now() == shards, "{}: {} bytes remain", what, reader.now() - shards);
  for (nn::Module* module : fsdp::sharded_modules(model)) {
    const fsdp::Handle handle = fsdp::of(*module);
    t.check(handle.state() == fsdp::GroupState::kSharded || !handle.has_group(), "{}: {} is {}",
            what, handle.group_name(), fsdp::group_state_name(handle.state()));
    t.check(handle.phase() == fsdp::Phase::kIdle, "{}: {} is in {}", what, handle.group_name(),
            fsdp::phase_name(handle.phase()));
  }
  backward(chain_loss(t, model));
  for (const nn::NamedParameter& named : model.named_parameters())
    t.check(named.parameter.grad().defined(), "{}: {} has no gradient afterwards", what,
            named.name);
  drop_gradients(model);
  t.check(reader.now() == shards + kept_value_bytes(model),
          "{}: {} bytes remain after another step", what, reader.now() - shards);
}

// One rank has no collectives.
TESSERA_RANK_TEST_WITH("fsdp memory: everything goes back after a collective that throws", "[fsdp]",
                       {.worlds = {2, 3, 5}}) {
  using distributed::CollectiveKind;
  const std::int64_t shards = 3 * flat_group(world_cut(t)).shard;
  for (const auto kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    for (const char* label : {"block0", "block1", "block2"}) {
      for (const bool forward_first : {true, false}) {
        const PeakReader reader(t);
        bool fail = false;
        Chain model(flat_chain(3));
        shard_chain(model, {.mesh = t.world().mesh().with_group(
                                "data", failing_group(t, fail, kind, label))});
        nn::initialize(model, {.seed = 1});
        backward(chain_loss(t, model));
        drop_gradients(model);
        Variable loss;
        if (!forward_first) loss = chain_loss(t, model);
        fail = true;
        t.check_throws<OutOfMemory>("on purpose", [&] {
          if (forward_first) loss = chain_loss(t, model);
          backward(loss);
        });
        loss = {};
        check_recovery(t, fmt::format("{} of {}", distributed::collective_name(kind), label), model,
                       shards, reader);
      }
    }
  }
}

TESSERA_RANK_TEST("fsdp memory: everything goes back after a wrong input and a hook that throws",
                  "[fsdp]") {
  for (const Way& way : ways()) {
    const PeakReader reader(t);
    Chain model(flat_chain(3));
    shard(model, way, t.world().mesh());
    nn::initialize(model, {.seed = 1});
    const std::int64_t shards = reader.now();
    const Tensor wrong = random_rows(4, kChainWidth - 1, DType::kF64, 1);
    t.check_throws<InvalidArgument>("", [&] { model(Variable(wrong)); });
    t.check(reader.now() == shards, "{}: {} bytes remain after a failed forward", way.name,
            reader.now() - shards);
    for (const bool last : {false, true}) {
      Variable h(random_rows(4, kChainWidth, DType::kF64, 1));
      Variable y = model(h);
      Variable watched = last ? y
                              : model.blocks()[1]
                                    ->children()[0]
                                    .module->named_parameters()[0]
                                    .parameter.value_leaf();
      const HookHandle hook = watched.register_hook(
          [](const Variable&) -> Variable { throw InvalidArgument("on purpose"); });
      t.check_throws<InvalidArgument>("on purpose", [&] { backward(sum(y)); });
      HookHandle(hook).remove();
      y = watched = {};
      check_recovery(t, fmt::format("{}, a hook {}", way.name, last ? "at the end" : "inside"),
                     model, shards, reader);
    }
  }
}

TESSERA_RANK_TEST("fsdp memory: reset_iter_state gives everything back, in every phase", "[fsdp]") {
  for (const Way& way : ways()) {
    const PeakReader reader(t);
    Chain model(flat_chain(3));
    shard(model, way, t.world().mesh());
    nn::initialize(model, {.seed = 1});
    const std::int64_t shards = reader.now();
    Variable loss = chain_loss(t, model);  // after a forward
    fsdp::of(model).reset_iter_state();
    loss = {};
    check_recovery(t, fmt::format("{}, after a forward", way.name), model, shards, reader);
    fsdp::of(model).set_requires_gradient_sync(false);
    backward(chain_loss(t, model));  // gradients are pending
    fsdp::of(model).reset_iter_state();
    fsdp::of(model).set_requires_gradient_sync(true);
    check_recovery(t, fmt::format("{}, with gradients that wait", way.name), model, shards, reader);
  }
}

TESSERA_RANK_TEST("fsdp memory: gathers that nobody used go back at the end", "[fsdp]") {
  const PeakReader reader(t);
  Chain model(flat_chain(4));
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const std::int64_t shards = reader.now();
  fsdp::of(*model.blocks()[0])
      .set_modules_to_forward_prefetch({model.blocks()[3].get(), model.blocks()[1].get()});
  for (int step = 0; step < 2; ++step) {
    backward(chain_loss(t, model));
    drop_gradients(model);
    t.check(reader.now() == shards, "{} bytes remain after a step", reader.now() - shards);
    const NoGradGuard no_grad;
    chain_loss(t, model);
    t.check(reader.now() == shards, "{} bytes remain after a forward without gradients",
            reader.now() - shards);
  }
}

}  // namespace
}  // namespace tessera::testing
