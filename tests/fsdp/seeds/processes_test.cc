// The models of PyTorch's FSDP tests with ranks as processes: one line of the matrix for each,
// mostly with two ranks only.

#include <catch2/catch.hpp>

#include "tessera/tests/fsdp/seeds/seed_models.h"
#include "tessera/tests/support/fsdp/reference_training.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/models/small_models.h"
#include "tessera/tests/support/models/transformer_with_shared_params.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/subtests.h"

namespace tessera::testing {
namespace {

const auto strategies = axis("strategy", {value("full", ShardingStrategy::kFull),
                                          value("replicate", ShardingStrategy::kReplicate),
                                          value("hybrid_grad", ShardingStrategy::kHybridGrad)});

TESSERA_RANK_TEST("seeds: nested models, saved whole and loaded", "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](ShardingStrategy strategy) {
        train_against_reference(t, make<NestedWrappedModule>(),
                                {.strategy = strategy, .save_and_load = SaveAndLoad::kFull});
        train_against_reference(t, make<NonUniformReqGradNWM>(),
                                {.strategy = strategy,
                                 .offload = fsdp::CpuOffload{},
                                 .scaler = nn::GradScalerOptions{.init_scale = 256}});
      },
      strategies);
}

TESSERA_RANK_TEST_WITH("seeds: TransformerWithSharedParams with queued compute", "[fsdp][seeds]",
                       {.cpu_compute = StreamKind::kQueued}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy) {
        train_against_reference(
            t, make<TransformerWithSharedParams>({.deterministic = true, .inputs_by_rank = true}),
            {.strategy = strategy});
      },
      strategies);
}

// All other models of those tests, two steps each.
TESSERA_RANK_TEST_WITH("seeds: all other models, on two ranks", "[fsdp][seeds]", {.worlds = {2}}) {
  run_subtests(
      t, [&](const MakeModel& make) { train_against_reference(t, make, {.tolerance = 1e-12}); },
      axis("model", {value("always wrapped", MakeModel(make<AlwaysWrapNestedWrappedModule>())),
                     value("skip", make_small<SkipModel>({.double_nest = true}, {3, 10})),
                     value("mlp", make_small<MLP>({.dim = 5, .with_buffer = true}, {4, 5})),
                     value("mlp stack",
                           make_small<MLPStack>({.dim = 3, .with_seq_parallel = true}, {2, 3, 3})),
                     value("double linear", make_double_linear(false)),
                     value("transformer", make_decoder({.dropout = 0}))}));
  train_against_reference(t, make<MixtureOfExperts>(experts_of(t)),
                          {.tolerance = 1e-12, .mesh_of_group = expert_mesh(t)});
  train_against_reference(t, make<TransformerWithSharedParams>({.inputs_by_rank = true}),
                          {.buffers_of_rank = true});
}

// Zeroing full values and zeroing shards give the same; copies of full values outlive the guard.
TESSERA_RANK_TEST("a zeroed model is zero on every rank", "[fsdp][seeds]") {
  for (const bool summon_full : {true, false}) {
    NestedWrappedModule model({.dtype = DType::kF64});
    shard_model(model, {.mesh = t.world().mesh()});
    model.initialize({.seed = 1});
    const std::vector<Tensor> before = get_full_params(model);
    const std::vector<Tensor> own = get_full_params(model, {.recurse = false});
    t.check(before.size() == 10 && own.size() == 4, "{} and {} parameters", before.size(),
            own.size());
    zero_model(model, {.summon_full = summon_full});
    for (const nn::Parameter& parameter : model.parameters()) {
      for (const double x : parameter.local().tensor().to_vector<double>())
        t.check(x == 0, "{} has {}", parameter.name(), x);
    }
    const auto reference = init_model<NestedWrappedModule>({.dtype = DType::kF64}, {.seed = 1});
    for (std::size_t i = 0; i < before.size(); ++i)
      t.check_equal(before[i], reference->parameters()[i].local().tensor(), "copies");
  }
}

}  // namespace
}  // namespace tessera::testing
