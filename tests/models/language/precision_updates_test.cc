// Updates under 16-bit precisions: updates too small for 16 bits are kept, because storage is f32;
// and gradients that overflow skip a step on all ranks.

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/models/parallelize/parallelize_rules.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/models/training/trainer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/models/language/run.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using models::precision_named;
using models::ShardMode;

// x times five weights that start at 1: not divisible by some world sizes, fewer than other world
// sizes.
class Weights final : public nn::Layer<Weights> {
 public:
  explicit Weights(DType dtype)
      : weight_({.shape = {5}, .dtype = dtype, .init = nn::init::constant(1)}) {
    register_parameter("weight", weight_);
  }
  Variable forward(const Variable& x) { return x * weight_.value(); }

 private:
  nn::Parameter weight_;
};

constexpr int kUpdates = 200;
constexpr double kUpdate = 1e-4;

// The rank's weights after that many steps with a gradient of 1.
std::vector<double> updated(const distributed::World& world, DType storage,
                            const models::Precision& precision, ShardMode mode) {
  Weights model(storage);
  models::shard_module(model, {.mesh = world.mesh(), .shard = mode, .precision = precision});
  nn::initialize(model, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), {.lr = kUpdate});
  for (int step = 0; step < kUpdates; ++step) {
    backward(sum(model(Variable(full({5}, 1, {.dtype = precision.compute})))));
    sgd.step();
    sgd.zero_grad();
  }
  return cast(model.parameters()[0].local().tensor(), DType::kF64).to_vector<double>();
}

TESSERA_RANK_TEST_WITH("updates too small for bf16 are not lost", "[precision]",
                       {.worlds = {1, 2, 3}}) {
  float wanted = 1;
  for (int step = 0; step < kUpdates; ++step) wanted -= static_cast<float>(kUpdate);
  t.check(std::abs(wanted - 0.98F) < 1e-4F, "f32 ends at {}", wanted);
  for (const ShardMode mode : {ShardMode::kFull, ShardMode::kGrad, ShardMode::kReplicate}) {
    if (mode != ShardMode::kFull && !on_threads()) continue;
    for (const char* name : {"bf16", "f32", "f16"}) {
      if (name != std::string("bf16") && !on_threads()) continue;
      for (const double weight : updated(t.world(), DType::kF32, precision_named(name), mode))
        t.check(weight == wanted, "{} ends at {:.9g}, f32 at {:.9g}", name, weight, wanted);
    }
  }
  if (!on_threads()) return;
  // Stored in bf16 they are lost: 1 - 1e-4 is 1.
  models::Precision stored = precision_named("bf16");
  stored.storage = stored.buffer = DType::kBF16;
  for (const double weight : updated(t.world(), DType::kBF16, stored, ShardMode::kFull))
    t.check(weight == 1, "stored in bf16 it ends at {}", weight);
}

// ---- the loss scale ----

// The last rank's gradient, times a loss scale of 2^15 or more, is infinite in f16; the gradients
// of the other ranks are small.
class OverflowTask final : public models::Task {
 public:
  OverflowTask(const distributed::World& world, nn::Module& module, Weights& model)
      : last_(world.rank() + 1 == world.size()), module_(module), model_(model) {}
  nn::Module& module() override { return module_; }
  std::int64_t steps_per_epoch() const override { return 1; }
  models::BatchShare load(std::int64_t) override {
    return {.samples = 1, .rows = 1, .padded_rows = 1, .count = 1};
  }
  models::LossSum loss(std::int64_t, std::int64_t) override {
    const Tensor x = full({5}, last_ ? 2.5 : 0.25, {.dtype = DType::kF16});
    return {.sum = sum(cast(model_(Variable(x)), DType::kF32))};
  }
  models::EvalMetrics evaluate() override { return {}; }

 private:
  bool last_;
  nn::Module& module_;
  Weights& model_;
};

TESSERA_RANK_TEST_WITH("a gradient that overflows in f16 leaves the step out on all ranks",
                       "[precision]", {.worlds = {1, 2, 3}}) {
  for (const ShardMode mode : {ShardMode::kFull, ShardMode::kReplicate}) {
    Weights model(DType::kF32);
    models::shard_module(
        model, {.mesh = t.world().mesh(), .shard = mode, .precision = precision_named("f16")});
    nn::initialize(model, {.seed = 1});
    nn::optim::SGD sgd(model.parameters(), {.lr = 0.5});
    OverflowTask task(t.world(), model, model);
    models::Trainer trainer(t.world(), task, sgd, {.loss_scale = true});
    const auto weights = [&] { return model.parameters()[0].local().tensor().to_vector<float>(); };
    std::string told;
    // The gradient's mean over the ranks.
    const double gradient = (2.5 + 0.25 * (t.size() - 1)) / t.size();
    double wanted = 1, scale = 65536;
    for (int step = 1; step <= 4; ++step) {
      const bool skipped = 2.5 * scale > 65504;
      const models::StepMetrics metrics = trainer.step();
      t.check(metrics.step == step, "step {}", metrics.step);
      t.check(metrics.skipped == skipped && metrics.loss_scale == scale,
              "step {}: skipped {}, scale {}; wanted {}, {}", step, metrics.skipped,
              metrics.loss_scale.value_or(0), skipped, scale);
      t.check(skipped || std::abs(metrics.grad_norm - gradient * std::sqrt(5.0)) < 1e-6,
              "the norm is {}", metrics.grad_norm);
      if (!skipped) wanted -= 0.5 * gradient;
      for (const float weight : weights())
        t.check(std::abs(weight - wanted) < 1e-6, "step {}: {}, wanted {}", step, weight, wanted);
      if (skipped) scale /= 2;
      told +=
          fmt::format("{} {} {}; ", metrics.skipped, metrics.loss_scale.value_or(0), metrics.loss);
    }
    t.check_same_on_all_ranks(told, "what the steps report");
    t.check(scale == 16384, "the scale ends at {}", scale);
  }
}

TESSERA_RANK_TEST_WITH("language models train in 16 bits as in 32, up to their rounding",
                       "[precision]", {.worlds = {1, 3}}) {
  const auto near = [](double a, double b) { return std::abs(a - b) < 0.05 * b; };
  for (const std::string& model : models_here()) {
    const RunResult f32 = run_language(t.world(), {.model = model, .precision = "f32"});
    const RunResult bf16 = run_language(t.world(), {.model = model, .precision = "bf16"});
    for (std::size_t step = 0; step < f32.steps.size(); ++step) {
      const double loss = bf16.steps[step].loss, wanted = f32.steps[step].loss;
      t.check(near(loss, wanted) && loss != wanted, "{} in bf16, step {}: loss {}, in f32 {}",
              model, step + 1, loss, wanted);
    }
    // f16 lags behind by the steps that the loss scale skips at the start.
    const RunResult f16 = run_language(t.world(), {.model = model, .precision = "f16"});
    const double first = f16.steps.front().loss, last = f16.steps.back().loss;
    t.check(near(first, f32.steps.front().loss) && first != f32.steps.front().loss,
            "{} in f16: loss {}, in f32 {}", model, first, f32.steps.front().loss);
    t.check(last < 0.98 * first && !f16.steps.back().skipped, "{} in f16: loss {}, in the end {}",
            model, first, last);
  }
}

}  // namespace
}  // namespace tessera::testing
