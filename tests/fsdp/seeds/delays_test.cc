// ModuleWithDelay and NestedWrappedModuleWithDelay of PyTorch's FSDP tests: delayed after the loss,
// and before gradients are reduced. A missing wait changes the numbers.

#include <catch2/catch.hpp>

#include "tessera/tests/support/fsdp/reference_training.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/models/transformer_with_shared_params.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/subtests.h"

namespace tessera::testing {
namespace {

using distributed::CollectiveKind;
using MaybeKind = std::optional<CollectiveKind>;

const auto strategies = axis(
    "strategy", {value("full", ShardingStrategy::kFull), value("grad", ShardingStrategy::kGrad),
                 value("replicate", ShardingStrategy::kReplicate),
                 value("hybrid_full", ShardingStrategy::kHybridFull)});
const auto late = axis(
    "late", {value("none", MaybeKind()), value("all_gather", MaybeKind(CollectiveKind::kAllGather)),
             value("reduce_scatter", MaybeKind(CollectiveKind::kReduceScatter)),
             value("all_reduce", MaybeKind(CollectiveKind::kAllReduce))});

// The reference has no delays.
template <class M>
MakeModel make_late(double ms, const typename M::Options& model = {}) {
  return [ms, model](const ModelRequest& request) {
    typename ModuleWithDelay<M>::Options options{.model = model};
    options.model.dtype = request.dtype;
    options.delay_after_loss_ms = request.sharded ? ms : 0;
    return std::make_unique<ModuleWithDelay<M>>(options);
  };
}

void check_delays(RankTest& t) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, const MaybeKind& kind, double after_loss) {
        train_against_reference(t, make_late<NestedWrappedModule>(after_loss),
                                {.strategy = strategy, .late = kind, .late_ms = 1, .steps = 2});
      },
      strategies, late, axis("after_loss", {0.0, 2.0}));
}

TESSERA_RANK_TEST_WITH("seeds: NestedWrappedModuleWithDelay, compute inline", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  check_delays(t);
}

TESSERA_RANK_TEST_WITH("seeds: NestedWrappedModuleWithDelay, compute queued", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}, .cpu_compute = StreamKind::kQueued}) {
  check_delays(t);
}

TESSERA_RANK_TEST_WITH("seeds: ModuleWithDelay around another model", "[fsdp][seeds]",
                       {.worlds = {2}, .cpu_compute = StreamKind::kQueued}) {
  run_subtests(
      t,
      [&](const MaybeKind& kind) {
        train_against_reference(t,
                                make_late<TransformerWithSharedParams>(2, {.deterministic = true}),
                                {.late = kind, .late_ms = 1});
      },
      late);
}

}  // namespace
}  // namespace tessera::testing
