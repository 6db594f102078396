// The loop of steps and evaluations, with a task made for the test.

#include "tessera/tools/program/train.h"

#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::testing {
namespace {

// A task with one weight, whose run is asked to end during an evaluation.
class StoppedEvaluation final : public models::Task {
 public:
  explicit StoppedEvaluation(distributed::World& world) : world_(world) { nn::initialize(linear_); }
  nn::Module& module() override { return linear_; }
  std::int64_t steps_per_epoch() const override { return 1; }
  models::BatchShare load(std::int64_t /*step*/) override {
    return {.samples = world_.size(),
            .first_sample = world_.rank(),
            .rows = 1,
            .padded_rows = 1,
            .count = 1};
  }
  models::LossSum loss(std::int64_t begin, std::int64_t end) override {
    return {.sum = sum(linear_(Variable(full({end - begin, 1}, 0.5))))};
  }
  models::EvalMetrics evaluate() override {
    if (world_.rank() == 1) world_.ask_to_stop(SIGINT);
    return {};
  }

 private:
  distributed::World& world_;
  nn::Linear linear_{{.in = 1, .out = 1, .bias = false}};
};

TEST_CASE("a signal to one rank during the last evaluation ends the run of all ranks early") {
  models::runs::TrainOptions options = models::runs::default_options("mlp");
  options.ranks = 3;
  options.launch = "threads";
  std::atomic<int> agreed{0};
  const distributed::LaunchResult result =
      distributed::launch(0, nullptr, options.launch_options(), [&](distributed::World& world) {
        world.heed_stop_signals();
        StoppedEvaluation task(world);
        nn::optim::SGD optimizer(task.module().parameters(), {.lr = 0.1});
        models::Trainer trainer(world, task, optimizer);
        tools::Checkpoints checkpoints(world, trainer, options);
        const tools::TrainingEnd end =
            tools::run_training(world, trainer, checkpoints, options, 2, nullptr);
        if (end.steps == 2 && end.signal == SIGINT) ++agreed;
      });
  CHECK(result.failure.empty());
  CHECK(agreed == 3);
  CHECK(result.exit_code == 128 + SIGINT);
  CHECK(result.steps == 2);
}

}  // namespace
}  // namespace tessera::testing
