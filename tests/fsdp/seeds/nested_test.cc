// NestedWrappedModule and AlwaysWrapNestedWrappedModule of PyTorch's FSDP tests train like the
// unsharded reference, over the whole matrix of those tests: initialisation, strategy, offload,
// prefetch, save and load.

#include <catch2/catch.hpp>

#include "tessera/tests/support/fsdp/reference_training.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/subtests.h"

namespace tessera::testing {
namespace {

using Offload = std::optional<fsdp::CpuOffload>;

const auto strategies = axis(
    "strategy", {value("full", ShardingStrategy::kFull), value("grad", ShardingStrategy::kGrad),
                 value("replicate", ShardingStrategy::kReplicate),
                 value("hybrid_full", ShardingStrategy::kHybridFull),
                 value("hybrid_grad", ShardingStrategy::kHybridGrad)});
const auto inits =
    axis("init", {value("before", InitMode::kBefore), value("after", InitMode::kAfter),
                  value("deferred", InitMode::kDeferred)});
const auto offloads =
    axis("offload", {value("none", Offload()), value("cpu", Offload({.pin_memory = true})),
                     value("unpinned", Offload({.pin_memory = false}))});
const auto backward_prefetches = axis("backward", {value("pre", fsdp::BackwardPrefetch::kPre),
                                                   value("none", fsdp::BackwardPrefetch::kNone)});
const auto forward_prefetches = axis("forward", {0, 1, 2});

// Also if they share one GPU: a world of one rank would test nothing.
TESSERA_RANK_TEST_WITH("seeds: their world has 4 ranks, however many GPUs there are",
                       "[fsdp][seeds]", {.worlds = {seeds_world()}}) {
  t.check(t.size() == 4, "{} ranks", t.size());
}

TESSERA_RANK_TEST_WITH("seeds: NestedWrappedModule, strategy and init mode", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, InitMode init) {
        train_against_reference(t, make<NestedWrappedModule>(),
                                {.init = init, .strategy = strategy});
      },
      strategies, inits);
}

TESSERA_RANK_TEST_WITH("seeds: NestedWrappedModule, offload", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, const Offload& offload) {
        train_against_reference(t, make<NestedWrappedModule>(),
                                {.strategy = strategy, .offload = offload});
      },
      strategies, offloads);
}

void check_prefetch(RankTest& t) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, fsdp::BackwardPrefetch backward, int forward) {
        train_against_reference(
            t, make<NestedWrappedModule>(),
            {.strategy = strategy, .prefetch = {.forward = forward, .backward = backward}});
      },
      strategies, backward_prefetches, forward_prefetches);
}

TESSERA_RANK_TEST_WITH("seeds: NestedWrappedModule, prefetch", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  check_prefetch(t);
}

TESSERA_RANK_TEST_WITH("seeds: NestedWrappedModule, prefetch with queued compute", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}, .cpu_compute = StreamKind::kQueued}) {
  check_prefetch(t);
}

TESSERA_RANK_TEST("seeds: NestedWrappedModule at other worlds, saved and loaded in between",
                  "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, SaveAndLoad save) {
        train_against_reference(t, make<NestedWrappedModule>(),
                                {.strategy = strategy, .save_and_load = save, .steps = 3});
      },
      strategies,
      axis("save", {value("none", SaveAndLoad::kNone), value("sharded", SaveAndLoad::kSharded),
                    value("full", SaveAndLoad::kFull)}));
}

TESSERA_RANK_TEST("seeds: AlwaysWrapNestedWrappedModule", "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](ShardingStrategy strategy) {
        train_against_reference(t, make<AlwaysWrapNestedWrappedModule>(), {.strategy = strategy});
      },
      strategies);
}

// The whole matrix; run by hand.
TESSERA_RANK_TEST_WITH("seeds: the whole matrix of NestedWrappedModule", "[.sweep]",
                       {.timeout = std::chrono::minutes(30)}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, InitMode init, const Offload& offload,
          fsdp::BackwardPrefetch backward, int forward) {
        const ReferenceTrainingOptions options{
            .init = init,
            .strategy = strategy,
            .offload = offload,
            .prefetch = {.forward = forward, .backward = backward}};
        train_against_reference(t, make<NestedWrappedModule>(), options);
        train_against_reference(t, make<AlwaysWrapNestedWrappedModule>(), options);
      },
      strategies, inits, offloads, backward_prefetches, forward_prefetches);
}

}  // namespace
}  // namespace tessera::testing
