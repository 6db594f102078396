// Bytes of parameters, gradients, momentum and gathered values: exact if the arithmetic is exact,
// otherwise bounded. One axis; other ways to shard are in memory_modes_test.cc.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/tests/fsdp/memory/memory_run.h"

namespace tessera::testing {
namespace {

using Prefetch = fsdp::PrefetchOptions;
constexpr auto kNone = fsdp::BackwardPrefetch::kNone;

TESSERA_RANK_TEST("fsdp memory: shards, gradients and momentum are what the arithmetic says",
                  "[fsdp]") {
  MemoryCounters& memory = t.world().context()->memory();
  const MemoryReading before = memory.current();
  {
    Chain model({.widths = {7, 5, 9}, .classes = 3});
    shard_chain(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 1});
    nn::optim::SGD sgd(model.parameters(), kSgd);
    GroupBytes expected;
    for (const auto& [in, out] : {std::pair{7, 5}, {5, 9}, {9, 3}}) {
      const GroupBytes group = bytes_of(linear_shapes(in, out), world_cut(t));
      expected.shard += group.shard;
      expected.momentum += group.momentum;
      expected.grads += group.grads;
    }
    const auto check = [&](MemoryCategory category, std::int64_t bytes) {
      const std::int64_t grown = memory.current()[category] - before[category];
      t.check(grown == bytes, "{} takes {} bytes, expected {}", memory_category_name(category),
              grown, bytes);
    };
    for (int step = 0; step < 3; ++step) {
      backward(sharded_loss(model(Variable(random_rows(4, 7, DType::kF64, 1))), t.world()));
      check(MemoryCategory::kGradient, expected.grads);
      sgd.step();
      sgd.zero_grad();
      check(MemoryCategory::kParameter, expected.shard);
      check(MemoryCategory::kOptimizer, expected.momentum);
      check(MemoryCategory::kGradient, 0);
      check(MemoryCategory::kGathered, 0);
    }
  }
  const MemoryReading after = memory.current();
  t.check(after.total() == before.total(), "{} bytes remain after the model is gone",
          after.total() - before.total());
}

// The value is the shard, and the slot becomes the gradient.
TESSERA_RANK_TEST_WITH("fsdp memory: one rank takes what a model takes that is not sharded",
                       "[fsdp]", {.worlds = {1}}) {
  std::vector<std::int64_t> peaks[2];
  for (const bool sharded : {false, true}) {
    PeakReader reader(t);
    Chain model(flat_chain(4));
    if (sharded) shard_chain(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 1});
    for (int step = 0; step < 3; ++step) {
      reader.start();
      backward(chain_loss(t, model));
      peaks[sharded ? 1 : 0].push_back(reader.peak());
      drop_gradients(model);
    }
  }
  for (std::size_t step = 0; step < peaks[0].size(); ++step)
    t.check(peaks[1][step] == peaks[0][step], "step {}: {} bytes, without sharding {}", step,
            peaks[1][step], peaks[0][step]);
}

struct Case {
  int groups = 4;
  Prefetch prefetch = {};
  int reduce_buffers = 1;
};

void check_peaks(RankTest& t, const Case& c) {
  const FlatChain expected = {.group = flat_group(world_cut(t)),
                              .groups = c.groups,
                              .depth = std::max(c.prefetch.forward, 1),
                              .reduce_buffers = c.reduce_buffers};
  const std::string name = fmt::format("{} groups, {} ahead, {} reduce buffers", c.groups,
                                       c.prefetch.forward, c.reduce_buffers);
  check_flat_chain(t, name, expected, [&](Chain& model) {
    shard_chain(model, {.mesh = t.world().mesh()});
    fsdp::of(model).set_prefetch(c.prefetch);
    fsdp::of(model).set_reduce_scatter_max_input_buffers(c.reduce_buffers);
  });
  t.check(expected.forward_peak() <= expected.forward_bound(), "{}: forward over the bound", name);
  t.check(expected.backward_peak() <= expected.backward_bound(), "{}: backward over the bound",
          name);
}

TESSERA_RANK_TEST("fsdp memory: peaks of a flat chain, to the byte", "[fsdp]") {
  for (const int groups : {2, 3, 6}) check_peaks(t, {.groups = groups});
  for (const int buffers : {0, 2}) check_peaks(t, {.groups = 5, .reduce_buffers = buffers});
}

TESSERA_RANK_TEST("fsdp memory: peaks by how many groups are gathered ahead", "[fsdp]") {
  for (const int forward : {0, 2, 3})
    check_peaks(t, {.groups = 5, .prefetch = {.forward = forward}});
  check_peaks(t, {.prefetch = {.forward = 0, .backward = kNone}});
  check_peaks(t, {.prefetch = {.forward = 0, .backward = kNone}, .reduce_buffers = 0});
}

TESSERA_RANK_TEST_WITH("fsdp memory: peaks of a flat chain with queued compute", "[fsdp]",
                       ({.worlds = {1, 3}, .cpu_compute = StreamKind::kQueued})) {
  check_peaks(t, {.groups = 6});
  check_peaks(t, {.groups = 4, .reduce_buffers = 0});
}

TESSERA_RANK_TEST("fsdp memory: the bounds hold with parameters of the root's own", "[fsdp]") {
  constexpr std::int64_t kClasses = 2;
  constexpr int kGroups = 5;
  for (const int reduces : {1, 0}) {
    PeakReader reader(t);
    ChainOptions options = flat_chain(kGroups);
    options.classes = kClasses;
    Chain model(options);
    shard_chain(model, {.mesh = t.world().mesh()});
    fsdp::of(model).set_reduce_scatter_max_input_buffers(reduces);
    nn::initialize(model, {.seed = 1});
    const GroupBytes block = flat_group(world_cut(t));
    const GroupBytes root = bytes_of(linear_shapes(kChainWidth, kClasses), world_cut(t));
    const std::int64_t shards = kGroups * block.shard + root.shard;
    const std::int64_t b = std::max(block.gathered, block.slots);
    const std::int64_t n = std::max(root.gathered, root.slots);
    for (int step = 0; step < 3; ++step) {
      reader.start();
      const Variable loss = chain_loss(t, model);
      const std::int64_t forward = 2 * block.gathered + root.gathered + shards;
      t.check(reader.peak() == forward, "forward: {} bytes, expected {}", reader.peak(), forward);
      reader.start();
      backward(loss);
      const std::int64_t bound = (3 + reduces) * b + n + 2 * shards;
      t.check(reader.peak() <= bound, "backward: {} bytes, bound {}", reader.peak(), bound);
      drop_gradients(model);
    }
  }
}

// ---- held groups --------------------------------------------------------------------------------

TESSERA_RANK_TEST(
    "fsdp memory: groups told to stay add their own bytes, and give them back one "
    "by one",
    "[fsdp]") {
  for (const int groups : {2, 5}) {
    check_flat_chain(
        t, "kept", {.group = flat_group(world_cut(t)), .groups = groups, .told_to_stay = true},
        [&](Chain& model) {
          shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = false});
        });
  }
}

TESSERA_RANK_TEST("fsdp memory: a group opened by hand adds its own bytes until it is closed",
                  "[fsdp]") {
  constexpr int kGroups = 4;
  const GroupBytes block = flat_group(world_cut(t));
  Chain model(flat_chain(kGroups));
  shard_chain(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  drop_gradients(model);
  backward(chain_loss(t, model));
  drop_gradients(model);
  PeakReader reader(t);
  const fsdp::Handle last = fsdp::of(*model.blocks().back());
  last.unshard().wait();
  t.check(reader.now() == block.gathered, "{} bytes while open, expected {}", reader.now(),
          block.gathered);
  t.check(counted(last.gathered_bytes()) == block.gathered, "gathered_bytes() is {}",
          last.gathered_bytes());
  reader.start();
  const Variable loss = chain_loss(t, model);
  t.check(reader.peak() == 3 * block.gathered, "forward: {} bytes, expected 3 of {}", reader.peak(),
          block.gathered);
  backward(loss);
  drop_gradients(model);
  last.unshard().wait();
  last.reshard();
  t.check(reader.now() == 0, "{} bytes remain after reshard()", reader.now());
}

TESSERA_RANK_TEST_WITH("fsdp memory: 1/n kept between forward and backward adds its own bytes",
                       "[fsdp]", ({.worlds = {4}})) {
  Cut cut = world_cut(t);
  cut.kept_by = 2;
  check_flat_chain(t, "1/2 kept", {.group = flat_group(cut), .groups = 4}, [&](Chain& model) {
    shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = 2});
  });
}

}  // namespace
}  // namespace tessera::testing
