// The loop of steps and evaluations, with a task made for the test.

#include "tessera/tools/program/train.h"

#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/fsdp/replicate.h"
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

// One bit of rank 1's copy of a weight flips before the third step.
class FlippedBit final : public models::Task {
 public:
  explicit FlippedBit(distributed::World& world) : world_(world) {
    fsdp::replicate(linear_, {.mesh = world.mesh()});
    nn::initialize(linear_, {.seed = 1});
  }
  nn::Module& module() override { return linear_; }
  std::int64_t steps_per_epoch() const override { return 9; }
  models::BatchShare load(std::int64_t step) override {
    if (step == 3 && world_.rank() == 1) {
      const Tensor weight = linear_.weight().local().tensor();
      copy_(weight, add(weight, 1e-7));
    }
    return {.samples = world_.size(),
            .first_sample = world_.rank(),
            .rows = 1,
            .padded_rows = 1,
            .count = 1};
  }
  models::LossSum loss(std::int64_t begin, std::int64_t end) override {
    return {.sum = sum(linear_(Variable(full({end - begin, 3}, 0.5))))};
  }
  models::EvalMetrics evaluate() override { return {}; }

 private:
  distributed::World& world_;
  nn::Linear linear_{{.in = 3, .out = 2}};
};

TEST_CASE("a replica that differs is found within the steps between checks, with rank and name") {
  models::runs::TrainOptions options = models::runs::default_options("mlp");
  options.ranks = 3;
  options.launch = "threads";
  options.check_replicas = GENERATE(0, 2, 5);
  const distributed::LaunchResult result =
      distributed::launch(0, nullptr, options.launch_options(), [&](distributed::World& world) {
        FlippedBit task(world);
        nn::optim::SGD optimizer(task.module().parameters(), {.lr = 0.1});
        models::Trainer trainer(world, task, optimizer);
        tools::Checkpoints checkpoints(world, trainer, options);
        tools::run_training(world, trainer, checkpoints, options, 6, nullptr);
      });
  if (options.check_replicas == 0) {
    CHECK(result.failure.empty());
    return;
  }
  CHECK_THAT(
      result.failure,
      Catch::Contains("after step " + std::string(options.check_replicas == 2 ? "4" : "5")) &&
          Catch::Contains("\"weight\" (the elements of rank 1 are not those of rank 0)"));
}

}  // namespace
}  // namespace tessera::testing
