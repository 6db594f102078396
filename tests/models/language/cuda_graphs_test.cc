// Training with cuda_graphs is bitwise equal to training without, on one GPU and sharded over
// several; operations that cannot be captured are rejected.
#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/models/nets/mlp_stack.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/models/training/image_task.h"
#include "tessera/models/training/trainer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/models/language/run.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

constexpr int kSteps = 8;

// Whether the test's device and ranks support replays; otherwise cuda_graphs is rejected.
bool can_replay(RankTest& t) {
  return t.world().device().is_cuda() && (t.size() == 1 || test_transport() == "nccl");
}

bool is_same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

void check_same(RankTest& t, const RunResult& graphs, const RunResult& eager) {
  for (std::size_t i = 0; i < eager.steps.size(); ++i) {
    const models::StepMetrics &a = graphs.steps.at(i), &b = eager.steps[i];
    t.check(is_same(a.loss, b.loss), "step {}: loss {:.17g}, without graphs {:.17g}", i + 1, a.loss,
            b.loss);
    t.check(is_same(a.grad_norm, b.grad_norm), "step {}: norm {:.17g}, without graphs {:.17g}",
            i + 1, a.grad_norm, b.grad_norm);
    t.check(a.comm_bytes == b.comm_bytes && a.collectives == b.collectives,
            "step {}: {} bytes in {} collectives, without graphs {} in {}", i + 1, a.comm_bytes,
            a.collectives, b.comm_bytes, b.collectives);
    t.check(a.gathered_peak_bytes >= b.gathered_peak_bytes,
            "step {}: {} gathered bytes, without graphs {}", i + 1, a.gathered_peak_bytes,
            b.gathered_peak_bytes);
  }
  t.check(is_same(graphs.evaluated.loss, eager.evaluated.loss),
          "evaluation: loss {:.17g}, without graphs {:.17g}", graphs.evaluated.loss,
          eager.evaluated.loss);
}

// Batches of 5, 5, 5, 5 and 3: the first runs normally, the second is captured, the batch of 3 runs
// normally.
void compare_language(RankTest& t, RunOptions options) {
  options.dropout = 0;
  options.steps = kSteps;
  const RunResult eager = run_language(t.world(), options);
  options.cuda_graphs = true;
  const RunResult graphs = run_language(t.world(), options);
  t.check(graphs.replayed == 6, "{} steps were replayed", graphs.replayed);
  check_same(t, graphs, eager);
}

TESSERA_RANK_TEST("cuda graphs: a transformer learns as without", "[cuda_graphs]") {
  if (!can_replay(t)) return;
  compare_language(t, {.model = "gpt", .precision = "f32", .adamw = true});
}

TESSERA_RANK_TEST("cuda graphs: in bf16, with passes, recomputation and a limit of the norm",
                  "[cuda_graphs]") {
  if (!can_replay(t)) return;
  compare_language(t, {.model = "llama",
                       .precision = "bf16",
                       .adamw = true,
                       .recompute = models::RecomputeMode::kFull,
                       .micro_batch = 2,
                       .max_grad_norm = 0.3});
}

TESSERA_RANK_TEST("cuda graphs: whole copies on each rank", "[cuda_graphs]") {
  if (!can_replay(t)) return;
  compare_language(t, {.model = "gpt", .precision = "f32", .shard = models::ShardMode::kReplicate});
}

models::data::ImageSet make_images(std::int64_t count) {
  models::data::ImageSet set;
  std::uint32_t state = 7;
  for (std::int64_t i = 0; i < count; ++i) {
    set.labels.push_back(static_cast<std::uint8_t>(i * 7 % 10));
    for (std::int64_t pixel = 0; pixel < models::data::kImagePixels; ++pixel) {
      state = state * 1664525 + 1013904223;
      set.pixels.push_back(static_cast<std::uint8_t>(state >> 24));
    }
  }
  return set;
}

// Evaluations run between the steps.
RunResult run_mlp(distributed::World& world, const models::TrainerOptions& options) {
  models::MlpStack model({.hidden = {11, 6}});
  models::parallelize(model, {.mesh = world.mesh(), .precision = models::precision_named("f32")});
  nn::initialize(model, {.seed = 3, .device = world.device()});
  const models::data::ImageSet train = make_images(17), test = make_images(7);
  models::ImageTask task(
      world, {.module = model, .forward = [&model](const Variable& x) { return model(x); }}, train,
      test, {.batch = 6, .seed = 3});
  nn::optim::SGD optimizer(model.parameters(), {.lr = 0.05, .momentum = 0.9});
  models::Trainer trainer(world, task, optimizer, options);
  RunResult result;
  for (int step = 0; step < kSteps; ++step) {
    result.steps.push_back(trainer.step());
    result.evaluated = trainer.evaluate();
  }
  result.replayed = trainer.steps_replayed();
  return result;
}

// Batches of 6, 6 and 5, on one rank and on two.
TESSERA_RANK_TEST("cuda graphs: a fully connected network learns as without", "[cuda_graphs]") {
  if (!can_replay(t)) return;
  const RunResult eager = run_mlp(t.world(), {.seed = 5});
  const RunResult graphs = run_mlp(t.world(), {.seed = 5, .cuda_graphs = true});
  t.check(graphs.replayed == 5, "{} steps were replayed", graphs.replayed);
  check_same(t, graphs, eager);
}

TESSERA_RANK_TEST("cuda graphs: no GPU, and ranks that share one, are refused", "[cuda_graphs]") {
  if (can_replay(t)) return;
  const std::string text = t.world().device().is_cuda()
                               ? "collectives of " + std::to_string(t.size()) +
                                     " ranks by \"local\", which meet on the host"
                               : "for training on GPUs, and this rank computes on cpu";
  t.check_throws<InvalidArgument>(text, [&] { run_mlp(t.world(), {.cuda_graphs = true}); });
}

TESSERA_RANK_TEST("cuda graphs: what changes from step to step is refused", "[cuda_graphs]") {
  if (!can_replay(t)) return;
  t.check_throws<InvalidArgument>("cuda_graphs would repeat one loss_scale", [&] {
    run_mlp(t.world(), {.loss_scale = true, .cuda_graphs = true});
  });
  t.check_throws<StateError>("draws random numbers, but cuda_graphs would repeat them", [&] {
    run_language(t.world(), {.precision = "f32", .steps = 1, .dropout = 0.5, .cuda_graphs = true});
  });
}

}  // namespace
}  // namespace tessera::testing
