// Settings of a handle: the modules that they reach, which of two settings wins, and what happens
// to settings of the whole tree that an inner module was given before a root took it over. Settings
// that throw: setting_errors_test.cc.

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::Handle;
using fsdp::RecurseOptions;
using Names = std::set<std::string>;

// ---- reach --------------------------------------------------------------------------------------

/// The sharded modules of a NestedWrappedModule: one inside another, below a Sequential that is not
/// sharded.
const Names kGroups = {"", "module.1", "module.1.0", "module.2"};

distributed::DeviceMesh two_by_two(RankTest& t) {
  return distributed::DeviceMesh({"replicate", "shard"}, {2, 2}, t.world().group(),
                                 t.world().device());
}

void shard_nested(NestedWrappedModule& model, const distributed::DeviceMesh& mesh) {
  for (nn::Module* group : model.groups()) fsdp::fully_shard(*group, {.mesh = mesh});
  fsdp::fully_shard(model, {.mesh = mesh});
}

struct Setter {
  const char* name;
  std::function<void(const Handle&, const RecurseOptions&)> call;  ///< sets a value that is not the
                                                                   ///< default
  std::function<bool(const Handle&)> has_acted;
};

const std::vector<Setter>& setters() {
  static const std::vector<Setter> all = {
      {"requires_gradient_sync",
       [](const Handle& h, const RecurseOptions& o) { h.set_requires_gradient_sync(false, o); },
       [](const Handle& h) { return !h.requires_gradient_sync(); }},
      {"requires_all_reduce",
       [](const Handle& h, const RecurseOptions& o) { h.set_requires_all_reduce(false, o); },
       [](const Handle& h) { return !h.requires_all_reduce(); }},
      {"reshard_after_forward",
       [](const Handle& h, const RecurseOptions& o) { h.set_reshard_after_forward(false, o); },
       [](const Handle& h) {
         return h.reshard_after_forward() == fsdp::ReshardAfterForward(false);
       }},
      {"reshard_after_backward",
       [](const Handle& h, const RecurseOptions& o) { h.set_reshard_after_backward(false, o); },
       [](const Handle& h) { return !h.reshard_after_backward(); }},
      {"gradient_divide_factor",
       [](const Handle& h, const RecurseOptions& o) { h.set_gradient_divide_factor(3, o); },
       [](const Handle& h) { return h.gradient_divide_factor() == 3; }},
      {"reduce_scatter_unused_params",
       [](const Handle& h, const RecurseOptions& o) {
         h.set_reduce_scatter_unused_params(true, o);
       },
       [](const Handle& h) { return h.reduce_scatter_unused_params(); }}};
  return all;
}

/// A call on one module, and the modules that it reaches.
struct Reach {
  const char* from;
  bool recurse;
  Names expected;
};
const std::vector<Reach>& reaches() {
  static const std::vector<Reach> all = {{"", true, kGroups},
                                         {"", false, {""}},
                                         {"module.1", true, {"module.1", "module.1.0"}},
                                         {"module.1", false, {"module.1"}},
                                         {"module.1.0", true, {"module.1.0"}}};
  return all;
}

std::string text_of(const Names& names) {
  std::string out;
  for (const std::string& name : names) out += "\"" + name + "\" ";
  return out;
}

TESSERA_RANK_TEST_WITH("fsdp settings: each reaches the modules below it, or its own alone",
                       "[fsdp]", {.worlds = {4}}) {
  const distributed::DeviceMesh mesh = two_by_two(t);
  for (const Setter& setter : setters()) {
    for (const Reach& reach : reaches()) {
      NestedWrappedModule model({.dtype = DType::kF64});
      shard_nested(model, mesh);
      setter.call(fsdp::of(model.get_submodule(reach.from)), {.recurse = reach.recurse});
      Names seen;
      for (const std::string& name : kGroups) {
        if (setter.has_acted(fsdp::of(model.get_submodule(name)))) seen.insert(name);
      }
      t.check(seen == reach.expected, "{} on \"{}\", recurse {}: reached {}, expected {}",
              setter.name, reach.from, reach.recurse, text_of(seen), text_of(reach.expected));
    }
  }
}

// There is no query for this setting, so the test reads the process group of the reduce-scatters.
TESSERA_RANK_TEST_WITH("fsdp settings: separate groups for reduce-scatters, and which modules",
                       "[fsdp]", {.worlds = {2}}) {
  for (const Reach& reach : reaches()) {
    NestedWrappedModule model({.dtype = DType::kF64});
    shard_nested(model, t.world().mesh());
    model.initialize({.seed = 1});
    fsdp::of(model.get_submodule(reach.from))
        .set_separate_reduce_scatter_group(true, {.recurse = reach.recurse});
    const ExecutionTrace trace =
        traced(t, [&] { backward(sum(model(Variable(random_rows(3, 8, DType::kF64, 1))))); });
    Names seen, expected;
    for (const CollectiveRecord& record : records_of(trace, "reduce_scatter")) {
      if (record.group.ends_with(".reduce_scatter")) seen.insert(record.label);
    }
    for (const std::string& name : reach.expected)
      expected.insert(fsdp::of(model.get_submodule(name)).group_name());
    t.check(seen == expected, "on \"{}\", recurse {}: {}, expected {}", reach.from, reach.recurse,
            text_of(seen), text_of(expected));
  }
}

TESSERA_RANK_TEST("fsdp settings: pending gradients are discarded below a module alone", "[fsdp]") {
  NestedWrappedModule model({.dtype = DType::kF64});
  shard_nested(model, t.world().mesh());
  model.initialize({.seed = 1});
  fsdp::of(model).set_requires_gradient_sync(false);
  backward(sum(model(Variable(random_rows(3, 8, DType::kF64, 1)))));
  const auto pending = [&] {
    Names out;
    for (const std::string& name : kGroups) {
      const nn::Module& group = model.get_submodule(name);
      if (group.parameters().front().owner()->has_pending_gradients()) out.insert(name);
    }
    return text_of(out);
  };
  // Every module's first parameter belongs to its own group, except in "module.1", where it belongs
  // to the inner group.
  t.check(pending() == text_of(kGroups), "after backward {} wait", pending());
  fsdp::of(model.get_submodule("module.1")).discard_pending_gradients();
  t.check(pending() == text_of({"", "module.2"}), "after discarding {} wait", pending());
  const nn::Module& outer = model.get_submodule("module.1.1");
  t.check(!outer.parameters().front().owner()->has_pending_gradients(), "module.1 itself waits");
}

// ---- two settings, one after another ------------------------------------------------------------

TESSERA_RANK_TEST_WITH("fsdp settings: a later gradient sync replaces what was said of all-reduces",
                       "[fsdp]", {.worlds = {4}}) {
  Chain model({});
  const distributed::DeviceMesh mesh = two_by_two(t);
  for (const auto& block : model.blocks()) fsdp::fully_shard(*block, {.mesh = mesh});
  const Handle root = fsdp::fully_shard(model, {.mesh = mesh});
  nn::initialize(model, {.seed = 1});
  const int groups = static_cast<int>(fsdp::sharded_modules(model).size());
  const auto reductions = [&](const char* what, int scatters, int all_reduces) {
    const ExecutionTrace trace =
        traced(t, [&] { backward(sum(model(Variable(random_rows(3, 7, DType::kF64, 1))))); });
    t.check(static_cast<int>(records_of(trace, "reduce_scatter").size()) == scatters &&
                static_cast<int>(records_of(trace, "all_reduce").size()) == all_reduces,
            "{}: {} reduce-scatters and {} all-reduces", what,
            records_of(trace, "reduce_scatter").size(), records_of(trace, "all_reduce").size());
  };
  root.set_requires_all_reduce(false);
  t.check(!root.requires_all_reduce() && root.requires_gradient_sync(), "all-reduce alone is off");
  reductions("without all-reduces", groups, 0);
  root.set_requires_gradient_sync(true);
  t.check(root.requires_all_reduce(), "the later call leaves all-reduces off");
  reductions("both again", groups, groups);
  root.set_requires_all_reduce(true);
  root.set_requires_gradient_sync(false);
  t.check(!root.requires_all_reduce(), "the later call leaves all-reduces on");
  reductions("neither", 0, 0);
  // Without the reduce-scatter before it, an all-reduce has nothing to reduce.
  root.set_requires_all_reduce(true);
  reductions("still neither", 0, 0);
  root.set_requires_gradient_sync(true);
  reductions("what waited", groups, groups);
}

// ---- a root takes over settings -----------------------------------------------------------------

struct Blocks {
  explicit Blocks(RankTest& test, int scale = 1)
      : t(test),
        model({.widths = {7 * scale, 5 * scale, 9 * scale, 3 * scale}}),
        inputs(7 * scale) {
    shard_chain(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 1});
  }
  Handle block(std::size_t i) { return fsdp::of(*model.blocks()[i]); }
  Handle root() { return fsdp::of(model); }
  Variable run() { return sum(model(Variable(random_rows(3, inputs, DType::kF64, 1)))); }

  RankTest& t;
  Chain model;
  std::int64_t inputs;
};

TESSERA_RANK_TEST("fsdp settings: a root takes over how far inner modules were told to prefetch",
                  "[fsdp]") {
  const fsdp::PrefetchOptions far = {.forward = 2, .backward = fsdp::BackwardPrefetch::kNone};
  Blocks blocks(t), told_at_root(t);
  blocks.block(1).set_prefetch(far);
  told_at_root.root().set_prefetch(far);
  for (int round = 0; round < 2; ++round) {
    const auto step = [](Blocks& each) { backward(each.run()); };
    const std::string events = events_of(traced(t, [&] { step(blocks); }));
    const std::string expected = events_of(traced(t, [&] { step(told_at_root); }));
    t.check(blocks.root().prefetch() == far, "the root's is another");
    t.check(events == expected, "round {}: \"{}\", expected \"{}\"", round, events, expected);
  }
  // Once there is a root, a setting on any module applies to its whole tree.
  blocks.block(0).set_prefetch({});
  t.check(blocks.root().prefetch() == fsdp::PrefetchOptions{}, "set through a block");
}

TESSERA_RANK_TEST_WITH("fsdp settings: a root takes over reduces in flight from inner modules",
                       "[fsdp]", {.worlds = {2, 3}}) {
  const auto peak = [&](const std::function<void(Blocks&)>& tell) {
    Blocks blocks(t, 11);  // not so small that the rounding of CUDA's allocator hides a gradient
    tell(blocks);
    MemoryCounters& memory = t.world().context()->memory();
    memory.reset_peak();
    backward(blocks.run());
    return memory.peak()[MemoryCategory::kGradient];
  };
  const std::int64_t usual = peak([](Blocks&) {});
  const std::int64_t by_root =
      peak([](Blocks& b) { b.root().set_reduce_scatter_max_input_buffers(0); });
  const std::int64_t by_block =
      peak([](Blocks& b) { b.block(2).set_reduce_scatter_max_input_buffers(0); });
  t.check(by_root < usual, "{} bytes of gradients, {} with none in flight", usual, by_root);
  t.check(by_block == by_root, "told to a block: {} bytes, to the root: {}", by_block, by_root);
}

// Compute does not wait for an iteration that is not over.
TESSERA_RANK_TEST_WITH("fsdp settings: a root takes over that another backward follows", "[fsdp]",
                       {.worlds = {2, 3}}) {
  const auto waits = [&](const std::function<void(Blocks&)>& tell) {
    Blocks blocks(t);
    tell(blocks);
    const ExecutionTrace trace = traced(t, [&] { backward(blocks.run()); });
    blocks.root().set_is_last_backward(true);
    backward(blocks.run());
    const std::vector<EventRecord> events = trace.all<EventRecord>();
    return std::count_if(events.begin(), events.end(), [](const EventRecord& event) {
      return event.action == EventAction::kWait &&
             (event.name == "scattered" || event.name == "reduced");
    });
  };
  const auto usual = waits([](Blocks&) {});
  const auto by_root = waits([](Blocks& b) { b.root().set_is_last_backward(false); });
  const auto by_block = waits([](Blocks& b) { b.block(0).set_is_last_backward(false); });
  t.check(by_root < usual, "{} waits for reductions, {} before another backward", usual, by_root);
  t.check(by_block == by_root, "told to a block: {} waits, to the root: {}", by_block, by_root);
}

// The optimizer of an inner module runs late on its own stream: the root's gathers wait for it.
TESSERA_RANK_TEST_WITH("fsdp settings: a root waits for the event that an inner module was given",
                       "[fsdp]", {.worlds = {2}, .cpu_compute = StreamKind::kQueued}) {
  Blocks blocks(t);
  Chain reference({.widths = {7, 5, 9, 3}});
  nn::initialize(reference, {.seed = 1});
  current_stream(default_device()).synchronize();
  const DeviceStream late =
      DeviceStream::create(default_device(), StreamKind::kQueued, "optimizer");
  {
    const StreamGuard guard(late);
    stream_sleep(late, 20);
    for (const nn::Parameter& parameter : blocks.model.blocks()[0]->parameters())
      fill_(parameter.local().tensor(), 0.25);
  }
  blocks.block(0).set_post_optim_event(late.record("stepped"));
  for (const nn::Parameter& parameter : reference.blocks()[0]->parameters())
    fill_(parameter.local().tensor(), 0.25);
  const Variable y = blocks.run();
  const Variable expected = sum(reference(Variable(random_rows(3, 7, DType::kF64, 1))));
  t.check_equal(y.tensor(), expected.tensor(), "what the optimizer wrote");
  late.synchronize();
}

TESSERA_RANK_TEST("fsdp settings: inner modules that were told differently are named by their root",
                  "[fsdp]") {
  Blocks blocks(t);
  const auto check_refused = [&](const std::string& setter) {
    t.check_throws<StateError>("[fsdp." + setter + "]", [&] { blocks.run(); });
    t.check_throws<StateError>("\"block0\" and \"block2\" were told differently",
                               [&] { blocks.run(); });
    // Nothing was taken over: each is its own root, as before.
    t.check(blocks.block(0).is_root() && blocks.block(2).is_root(), "taken over all the same");
  };
  blocks.block(0).set_prefetch({.forward = 2});
  blocks.block(2).set_prefetch({.forward = 0});
  check_refused("set_prefetch");
  blocks.block(2).set_prefetch({.forward = 2});
  blocks.block(0).set_is_last_backward(true);
  blocks.block(2).set_is_last_backward(false);
  check_refused("set_is_last_backward");
  blocks.block(2).set_is_last_backward(true);
  blocks.block(0).set_reduce_scatter_max_input_buffers(1);
  blocks.block(2).set_reduce_scatter_max_input_buffers(0);
  check_refused("set_reduce_scatter_max_input_buffers");
  blocks.block(2).set_reduce_scatter_max_input_buffers(1);
  backward(blocks.run());
  t.check(blocks.root().is_root() && blocks.root().prefetch().forward == 2, "agreed, but lost");
}

}  // namespace
}  // namespace tessera::testing
