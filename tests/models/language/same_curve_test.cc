// Options that must not change the loss curve: recomputation, batch prefetch and queued streams
// leave it bitwise equal; micro-batches, tensor parallelism, and batches smaller than the number of
// ranks leave it equal up to rounding.

#include <catch2/catch.hpp>
#include <vector>

#include "tessera/tests/models/language/run.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using models::RecomputeMode;
using models::ShardMode;

std::string figures(const RunResult& run) {
  std::string text = fmt::format("eval {:.17g}", run.evaluated.loss);
  for (const models::StepMetrics& step : run.steps)
    text += fmt::format("; {:.17g} {:.17g}", step.loss, step.grad_norm);
  return text;
}

TESSERA_RANK_TEST_WITH("recomputation changes no bit of a curve", "[curve]", {.worlds = {1, 3}}) {
  for (const std::string& model : models_here()) {
    for (const char* precision : {"f32", "bf16"}) {
      RunOptions options{.model = model, .precision = precision, .steps = 4};
      const RunResult plain = run_language(t.world(), options);
      const std::string wanted = figures(plain);
      t.check(plain.recomputed_modules == 0, "{} modules are recomputed", plain.recomputed_modules);
      for (const RecomputeMode mode : {RecomputeMode::kFull, RecomputeMode::kSelective}) {
        options.recompute = mode;
        const RunResult run = run_language(t.world(), options);
        t.check(run.recomputed_modules == 2, "{}: {} modules are recomputed", name_of(options),
                run.recomputed_modules);
        const std::string got = figures(run);
        t.check(got == wanted, "{}: {}, without recomputation {}", name_of(options), got, wanted);
      }
    }
  }
}

TESSERA_RANK_TEST_WITH("batches read ahead are those read when asked for", "[curve]",
                       {.worlds = {1, 3}}) {
  RunOptions options{.model = "transformer", .steps = 12};
  const std::string wanted = figures(run_language(t.world(), options));
  options.prefetch = 2;
  const std::string got = figures(run_language(t.world(), options));
  t.check(got == wanted, "{}, read when asked for {}", got, wanted);
}

// The experts' balance loss is computed per pass, so moe is excluded.
TESSERA_RANK_TEST_WITH("a batch in parts has the curve of the whole", "[curve]",
                       {.worlds = {1, 2, 4}}) {
  for (const std::string& model : models_here()) {
    if (model == "moe") continue;
    for (const ShardMode shard : {ShardMode::kFull, ShardMode::kGrad, ShardMode::kReplicate}) {
      check_curve(t, {.model = model, .shard = shard, .micro_batch = 1, .steps = 5});
    }
    check_curve(t, {.model = model, .precision = "f32", .micro_batch = 2, .steps = 5});
  }
}

TESSERA_RANK_TEST_WITH("a batch smaller than the ranks has the same curve", "[curve]",
                       {.worlds = {4, 5}}) {
  for (const std::string& model : models_here()) {
    check_curve(t, {.model = model, .batch = 2, .steps = 4});
    check_curve(t, {.model = model, .shard = ShardMode::kReplicate, .batch = 1, .steps = 4});
  }
}

TESSERA_RANK_TEST_WITH("layers that two ranks share have the same curve", "[curve]",
                       {.worlds = {2, 4}}) {
  for (const std::string& model : models_here()) {
    for (const char* precision : {"f64", "f32"})
      check_curve(t, {.model = model, .precision = precision, .tensor_ranks = 2, .steps = 5});
    // Ranks that have no row of the batch, or none of a pass.
    check_curve(t, {.model = model, .tensor_ranks = 2, .batch = 1, .steps = 4});
    // The auxiliary loss of a mixture depends on the passes.
    if (model != "moe")
      check_curve(t, {.model = model, .tensor_ranks = 2, .batch = 3, .micro_batch = 1, .steps = 4});
  }
}

// Five experts: two, two and one over three ranks.
TESSERA_RANK_TEST_WITH("experts on several ranks have the same curve", "[curve]",
                       {.worlds = {2, 3, 4}}) {
  for (const int ranks : {2, t.size()}) {
    if (t.size() % ranks != 0) continue;
    for (const ShardMode shard : {ShardMode::kFull, ShardMode::kReplicate})
      check_curve(t, {.model = "moe", .shard = shard, .expert_ranks = ranks, .steps = 5});
  }
}

TESSERA_RANK_TEST_WITH("gradients cut down have the same curve", "[curve]", {.worlds = {2, 3}}) {
  for (const std::string& model : models_here())
    check_curve(t, {.model = model, .max_grad_norm = 0.5, .steps = 5});
}

TEST_CASE("queued streams change no bit of a curve", "[curve]") {
  for (const std::string& model : tiny_model_names()) {
    std::vector<std::string> curves;
    for (const StreamKind kind : {StreamKind::kInline, StreamKind::kQueued}) {
      std::string curve;
      const auto errors = run_ranks(
          2,
          [&](distributed::World& world) {
            const std::string mine = figures(run_language(world, {.model = model, .steps = 4}));
            if (world.rank() == 0) curve = mine;
          },
          {.cpu_compute = kind});
      for (const std::string& text : exception_texts(errors)) CHECK(text == "");
      curves.push_back(curve);
    }
    INFO(model);
    CHECK(curves[0] != "");
    CHECK(curves[0] == curves[1]);
  }
}

}  // namespace
}  // namespace tessera::testing
