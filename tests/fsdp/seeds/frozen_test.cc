// NonUniformReqGradNWM of PyTorch's FSDP tests: everything is frozen except one small layer, so
// some ranks hold no trainable rows. All ranks still scale, clip and skip steps together.

#include <catch2/catch.hpp>
#include <limits>

#include "tessera/autograd/engine.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/testing.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/nn/training/grad_scaler.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/support/fsdp/reference_training.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/subtests.h"

namespace tessera::testing {
namespace {

const auto strategies = axis(
    "strategy", {value("full", ShardingStrategy::kFull), value("grad", ShardingStrategy::kGrad),
                 value("replicate", ShardingStrategy::kReplicate),
                 value("hybrid_full", ShardingStrategy::kHybridFull)});

// 8 rows leave no rank empty at 2, 3, 4 and 8 ranks, one at 5, two at 6 and one at 9. One row
// leaves all ranks but the first empty.
TESSERA_RANK_TEST_WITH("seeds: NonUniformReqGradNWM trains like its reference", "[fsdp][seeds]",
                       {.worlds = {2, 3, 4, 5, 6, 9}}) {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, std::int64_t rows) {
        train_against_reference(t, make<NonUniformReqGradNWM>({.last_rows = rows}),
                                {.strategy = strategy,
                                 .scaler = nn::GradScalerOptions{.init_scale = 256},
                                 .max_norm = 0.5,
                                 .tolerance = 1e-12});
      },
      strategies, axis<std::int64_t>("rows", {8, 1}));
}

// Frozen parameters have no gradient and no optimizer state, and do not change. It makes no
// difference whether they are frozen before or after the call.
TESSERA_RANK_TEST("seeds: NonUniformReqGradNWM leaves frozen parameters alone", "[fsdp][seeds]") {
  const auto model =
      std::make_unique<NonUniformReqGradNWM>(NonUniformOptions{.dtype = DType::kF64});
  for (nn::Parameter parameter : model->root().parameters()) parameter.set_requires_grad(true);
  shard_model(*model, {.mesh = t.world().mesh()});
  for (nn::NamedParameter& named : model->root().named_parameters())
    named.parameter.set_requires_grad(named.name.starts_with("module.2.1."));
  model->initialize({.seed = 0});
  const auto before = init_model<NonUniformReqGradNWM>({.dtype = DType::kF64});
  nn::optim::SGD sgd(model->root().parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 2; ++step) {
    const std::vector<Variable> input = model->get_input(t.world().device(), t.rank());
    model->run_backward(model->get_loss(input, model->call(input)));
    sgd.step();
  }
  for (const nn::NamedParameter& named : model->root().named_parameters()) {
    const nn::Parameter& parameter = named.parameter;
    const bool trained = named.name.starts_with("module.2.1.");
    t.check(parameter.grad().defined() == trained, "{}: gradient", named.name);
    t.check(sgd.state(parameter, "momentum").defined() == trained, "{}: optimizer state",
            named.name);
  }
  // What changed, and on which ranks: those with rows of the trained layer.
  const std::string report =
      fsdp::check_sharded_parity(before->root(), model->root(), {.gradients = false});
  const bool holds_rows =
      model->root().get_parameter("module.2.1.weight").local().tensor().numel() > 0;
  t.check(report.empty() != holds_rows, "changed: {}", report);
  t.check(
      report.find("module.0") == std::string::npos && report.find("module.1") == std::string::npos,
      "frozen ones changed: {}", report);
}

// An infinity on the only rank with the row: every rank skips the step and lowers the scale.
TESSERA_RANK_TEST_WITH("seeds: ranks without trainable rows agree on a skipped step",
                       "[fsdp][seeds]", {.worlds = {2, 5}}) {
  const auto model = std::make_unique<NonUniformReqGradNWM>(
      NonUniformOptions{.last_rows = 1, .dtype = DType::kF32});
  shard_model(*model, {.mesh = t.world().mesh()});
  model->initialize({.seed = 0});
  nn::Parameter weight = model->root().get_parameter("module.2.1.weight");
  t.check((weight.local().tensor().numel() > 0) == (t.rank() == 0), "the row is elsewhere");
  const Tensor before = clone(weight.local().tensor());
  nn::optim::SGD sgd(model->root().parameters(), {.lr = 0.1, .momentum = 0.9});
  nn::GradScaler scaler({.init_scale = 64});
  const auto step = [&](bool spoiled) {
    sgd.zero_grad();
    const std::vector<Variable> input = model->get_input(t.world().device(), t.rank());
    model->run_backward(scaler.scale(model->get_loss(input, model->call(input))));
    if (spoiled && weight.grad().numel() > 0)
      fill_(weight.grad().slice(1, 0, 1), std::numeric_limits<double>::infinity());
    const bool stepped = scaler.step(sgd);
    scaler.update();
    return stepped;
  };
  t.check(!step(true), "stepped over an infinity");
  t.check(scaler.get_scale() == 32, "the scale is {}", scaler.get_scale());
  t.check_equal(weight.local().tensor(), before, "a skipped step");
  t.check(step(false), "a good step was skipped");
  t.check(scaler.get_scale() == 32, "the scale is {}", scaler.get_scale());
  if (t.rank() == 0)
    t.check(!all_equal(weight.local().tensor(), before).ok, "a good step changed nothing");
}

}  // namespace
}  // namespace tessera::testing
