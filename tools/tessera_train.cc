#include "tessera/tools/tessera_train.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "tessera/models/data/fashion_mnist.h"
#include "tessera/models/mlp_stack.h"
#include "tessera/models/parallelize.h"
#include "tessera/models/trainer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/tensor/determinism.h"
#include "tessera/tools/tessera_progress.h"
#include "tessera/tools/tessera_run_folder.h"

namespace tessera::tools {
namespace {

using distributed::World;
using models::data::FashionMnist;

// The part of the steps in which the learning rate rises.
constexpr std::int64_t kWarmupPart = 20;

// The images of this process, read by the first rank that asks: ranks that are threads share them.
class Images {
 public:
  explicit Images(std::string folder) : folder_(std::move(folder)) {}
  const FashionMnist& get() {
    std::call_once(read_, [this] { images_ = models::data::read_fashion_mnist(folder_); });
    return images_;
  }

 private:
  std::string folder_;
  std::once_flag read_;
  FashionMnist images_;
};

std::int64_t total_steps(const TrainMlpOptions& options, std::int64_t images) {
  return options.steps.value_or(options.epochs * ((images + options.batch - 1) / options.batch));
}

models::TrainerOptions trainer_options(const TrainMlpOptions& options, std::int64_t steps) {
  return {.batch = options.batch,
          .lr = options.lr,
          .schedule = nn::optim::warm_up_cosine(
              {.warm_up = steps / kWarmupPart, .steps = steps, .midpoints = true}),
          .momentum = options.momentum,
          .weight_decay = options.weight_decay,
          .seed = options.seed,
          .dtype = options.model().dtype};
}

// What rank 0 shows and writes; the other ranks have none.
class Report {
 public:
  Report(const TrainMlpOptions& options, std::int64_t steps)
      : dtype_(options.model().dtype), file_(options.out), progress_(steps) {}

  void step(const models::StepMetrics& metrics) {
    file_.write(json_line(metrics, dtype_));
    progress_.step(metrics);
  }
  void trained() { progress_.finish(); }
  void evaluated(const models::EvalMetrics& metrics) {
    file_.write(json_line(metrics, dtype_));
    fmt::print("test loss {:.4f}\ntest accuracy {:.2f} %\n", metrics.loss, 100 * metrics.accuracy);
    std::fflush(stdout);
  }

 private:
  DType dtype_;
  MetricsFile file_;
  Progress progress_;
};

void greet(const TrainMlpOptions& options, const FashionMnist& images, std::int64_t steps) {
  const models::MlpOptions model = options.model();
  fmt::print("mlp {}-{}-{} ({}, {}), {} training images, {} steps of {}, {} ranks as {}\n",
             model.in, fmt::join(model.hidden, "-"), model.classes,
             models::activation_name(model.activation), options.precision, images.train.count(),
             steps, options.batch, options.ranks, options.launch);
  std::fflush(stdout);
}

void run_rank(World& world, const TrainMlpOptions& options, const FashionMnist& images) {
  const std::int64_t steps = total_steps(options, images.train.count());
  models::MlpStack model(options.model());
  models::parallelize(model, {.mesh = world.mesh()});
  nn::initialize(model, {.seed = options.seed, .device = world.device()});
  models::Trainer trainer(
      world,
      {.module = model, .forward = [&model](const Variable& pixels) { return model(pixels); }},
      images.train, trainer_options(options, steps));

  std::optional<Report> report;
  if (world.rank() == 0) {
    greet(options, images, steps);
    report.emplace(options, steps);
  }
  for (std::int64_t step = 1; step <= steps; ++step) {
    const models::StepMetrics metrics = trainer.step();
    if (report) report->step(metrics);
  }
  if (report) report->trained();
  const models::EvalMetrics metrics = trainer.evaluate(images.test);
  if (report) report->evaluated(metrics);
}

}  // namespace

Machine this_machine() { return {.cpu = detect_cpu_flags(), .cuda_devices = cuda_device_count()}; }

void check_machine(const TrainMlpOptions& options, const Machine& machine) {
  try {
    choose_cpu_isa(machine.cpu, requested_cpu_isa());
  } catch (const DeviceError& error) {
    throw CannotStart(error.what());
  }
  if (options.device != "cuda") return;
  if (machine.cuda_devices == 0)
    throw CannotStart("--device cuda: no CUDA GPU was found; train with --device cpu");
  throw CannotStart(
      fmt::format("--device cuda: {} GPU{} found, but this version trains on the CPU only; train "
                  "with --device cpu",
                  machine.cuda_devices, machine.cuda_devices == 1 ? "" : "s"));
}

int train_mlp(const TrainMlpOptions& options, int argc, char** argv) {
  set_deterministic(options.deterministic);
  // A rank's process comes by here again; what it would find was found by its parent.
  if (!distributed::is_rank_process()) {
    check_machine(options, this_machine());
    models::data::check_fashion_mnist(options.data);
    if (!options.out.empty()) prepare_run_folder(options.out, to_json(options).dump(2));
  }
  Images images(options.data);
  const distributed::LaunchResult result =
      distributed::launch(argc, argv, options.launch_options(),
                          [&](World& world) { run_rank(world, options, images.get()); });
  if (result.exit_code == 0) return 0;
  if (on_terminal()) fmt::print("\n");  // the live line stays above the message
  std::fflush(stdout);
  fmt::print(stderr, "tessera: {}\n", result.failure);
  return 1;
}

}  // namespace tessera::tools
