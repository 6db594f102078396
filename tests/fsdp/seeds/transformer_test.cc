// TransformerWithSharedParams of PyTorch's FSDP tests (a tied matrix, an integer buffer, batch
// norm, ignored modules) and the decoder-only Transformer train like the unsharded reference.

#include <catch2/catch.hpp>
#include <set>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/testing.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/tests/fsdp/seeds/seed_models.h"
#include "tessera/tests/support/fsdp/reference_training.h"
#include "tessera/tests/support/models/transformer_with_shared_params.h"
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
    axis("offload", {value("none", Offload()), value("cpu", Offload(fsdp::CpuOffload{}))});

TESSERA_RANK_TEST_WITH("seeds: TransformerWithSharedParams over the matrix", "[fsdp][seeds]",
                       {.worlds = {seeds_world()}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, InitMode init) {
        train_against_reference(
            t, make<TransformerWithSharedParams>({.deterministic = true, .inputs_by_rank = true}),
            {.init = init, .strategy = strategy});
      },
      strategies, inits);
  // As in PyTorch's tests: the same input on each rank.
  train_against_reference(
      t, make<TransformerWithSharedParams>({.add_bn = false, .deterministic = true}), {});
}

// Each rank drops different elements, and has the statistics of its own batches.
TESSERA_RANK_TEST_WITH("seeds: TransformerWithSharedParams with dropout and batch statistics",
                       "[fsdp][seeds]", {.worlds = {2, 3}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy) {
        train_against_reference(t, make<TransformerWithSharedParams>({.inputs_by_rank = true}),
                                {.strategy = strategy, .steps = 3, .buffers_of_rank = true});
      },
      strategies);
}

TESSERA_RANK_TEST_WITH("seeds: TransformerWithSharedParams, offload and prefetch", "[fsdp][seeds]",
                       {.worlds = {2, 3}, .cpu_compute = StreamKind::kQueued}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, const Offload& offload, int forward) {
        train_against_reference(
            t, make<TransformerWithSharedParams>({.deterministic = true, .inputs_by_rank = true}),
            {.strategy = strategy, .offload = offload, .prefetch = {.forward = forward}});
      },
      strategies, offloads, axis("forward", {0, 1}));
}

// The transformer inside is ignored: unsharded, unreduced, its gradient this rank's own.
TESSERA_RANK_TEST("seeds: TransformerWithSharedParams without its ignored modules",
                  "[fsdp][seeds]") {
  const TransformerWithSharedParamsOptions options{
      .deterministic = true, .inputs_by_rank = true, .dtype = DType::kF64};
  UnshardedReference reference(init_model<TransformerWithSharedParams>(options), nullptr,
                               {.group = t.world().group()});
  const auto model = init_model<TransformerWithSharedParams>(options);
  const std::vector<nn::Module*> ignored = model->get_ignored_modules();
  fsdp::fully_shard(model->root(), {.mesh = t.world().mesh(), .ignored_modules = ignored});
  const std::vector<nn::Parameter> plain = ignored.front()->parameters();
  const std::vector<std::string> names = fsdp::of(model->root()).parameter_names();
  t.check(
      std::set<std::string>(names.begin(), names.end()) ==
          std::set<std::string>{"embed_tokens.weight", "output_proj.bias", "bn.weight", "bn.bias"},
      "the group has {}", fmt::join(names, ", "));
  const std::vector<Variable> input = model->get_input(t.world().device(), t.rank());
  model->run_backward(model->get_loss(input, model->call(input)));
  reference.run_backward(reference.loss(input));
  const std::string report = fsdp::check_sharded_parity(
      reference.root(), model->root(), {.tolerance = 1e-12, .ignored_parameters = plain});
  t.check(report.empty(), "{}", report);
  for (const nn::Parameter& parameter : plain) {
    t.check(parameter.owner() == nullptr && !distributed::mesh_of(parameter).defined(),
            "{} was sharded", parameter.name());
    t.check(parameter.grad().defined() && parameter.grad().shape() == parameter.shape(),
            "{} has no whole gradient", parameter.name());
  }
}

TESSERA_RANK_TEST("seeds: Transformer", "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, models::ModelArgs args) {
        args.dropout = 0;
        train_against_reference(t, make_decoder(args),
                                {.strategy = strategy, .max_norm = 1.0, .tolerance = 1e-12});
      },
      strategies,
      axis("model", {value("tied", models::ModelArgs{}),
                     value("untied", models::ModelArgs{.weight_tying = false}),
                     value("recomputed", models::ModelArgs{.checkpoint_activations = true})}));
}

}  // namespace
}  // namespace tessera::testing
