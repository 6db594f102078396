// Training of fully connected networks on images.

#include <fmt/format.h>

#include <mutex>

#include "tessera/models/data/fashion_mnist.h"
#include "tessera/models/nets/mlp_stack.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/models/runs/language_run.h"
#include "tessera/models/runs/mesh_plan.h"
#include "tessera/models/training/image_task.h"
#include "tessera/models/training/trainer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tools/program/run_report.h"
#include "tessera/tools/program/train.h"

namespace tessera::tools {

using namespace models::runs;

namespace {

using distributed::World;
using models::data::FashionMnist;

// The learning rate rises during 1 / kWarmupPart of the steps.
constexpr std::int64_t kWarmupPart = 20;

// The images of a process. The first rank that asks reads them; rank threads share them.
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

void greet(RunReport& report, const TrainOptions& options, const FashionMnist& images,
           std::int64_t steps) {
  const models::MlpOptions model = options.mlp();
  report.print(
      fmt::format("mlp {}-{}-{} ({}, {}), {} training images, {} steps of {}, {} ranks as {}\n",
                  model.in, fmt::join(model.hidden, "-"), model.classes,
                  models::activation_name(model.activation), options.precision, images.train.size(),
                  steps, options.batch, options.world_size(), options.kind_of_ranks()));
}

void run_rank(World& world, const TrainOptions& options, const FashionMnist& images) {
  const models::Precision precision = models::precision_named(options.precision);
  const RunMeshes meshes = make_meshes(world, plan_mesh(options));
  models::MlpStack model(options.mlp());
  models::parallelize(model, parallelize_options(options, meshes));
  nn::initialize(model, {.seed = options.seed, .device = world.device()});
  models::ImageTask task(
      world,
      {.module = model, .forward = [&model](const Variable& pixels) { return model(pixels); }},
      images.train, images.test,
      {.batch = options.batch, .seed = options.seed, .dtype = precision.storage});
  nn::optim::SGD optimizer(
      model.parameters(),
      {.lr = options.lr, .momentum = options.momentum, .weight_decay = options.weight_decay});
  const std::int64_t steps = total_steps(options, task);
  models::Trainer trainer(world, task, optimizer,
                          {.schedule = nn::optim::warm_up_cosine(
                               {.warm_up = steps / kWarmupPart, .steps = steps, .midpoints = true}),
                           .seed = options.seed,
                           .loss_scale = precision.needs_loss_scale(),
                           .cuda_graphs = options.cuda_graphs,
                           .data_mesh = meshes.data});
  Checkpoints checkpoints(world, trainer, options);
  const ResumedFrom& from = checkpoints.resume();
  std::optional<RunReport> report;
  if (world.rank() == 0) {
    report.emplace(world, options, precision.storage,
                   ProgressOptions{.steps = steps, .done = from.step}, from.metrics_end());
    greet(*report, options, images, steps);
  }
  RunReport* shown = report ? &*report : nullptr;
  if (!goes_on(from, steps, shown)) return;
  const TrainingEnd end = run_training(world, trainer, checkpoints, options, steps, shown);
  if (end.steps > 0) save_model(world, options, model);  // else it may be an earlier run's folder
  if (end.signal != 0 && report)
    report->summary({{"interrupted", fmt::format("after step {}", end.steps)}});
}

}  // namespace

RankBody mlp_body(const TrainOptions& options) {
  return [options, images = std::make_shared<Images>(options.data)](World& world) {
    world.heed_stop_signals();
    run_rank(world, options, images->get());
  };
}

}  // namespace tessera::tools
