#pragma once

/// Trains a model on all ranks of a world together.
///
///     LanguageTask task(world, language_model(model), ...);
///     nn::optim::AdamW optimizer(model.parameters(), {...});
///     Trainer trainer(world, task, optimizer, {.seed = 1});
///     for (...) StepMetrics metrics = trainer.step();
///
/// The samples of a step depend on the task alone and are split over the ranks by the chunk rule,
/// so that a rank may have none; the loss is the mean over all of them, whatever the split, and
/// random numbers of a step (dropout) depend on seed, step and sample only. So equal seeds and
/// batches give equal losses on any number of ranks, up to rounding. Every rank makes the same
/// calls. Used by the thread of its rank; must not outlive what it was given.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/training/captured_step.h"
#include "tessera/models/training/metrics.h"
#include "tessera/models/training/task.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/nn/optim/lr_scheduler.h"
#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/training/grad_scaler.h"

namespace tessera::models {

struct TrainerOptions {
  nn::optim::Schedule schedule = nn::optim::constant();  ///< of the optimizer's lr, over all steps
  std::uint64_t seed = 1;                                ///< of dropout
  double max_grad_norm = 0;  ///< gradients are cut down to this norm together; 0: never
  /// Samples of a rank that are computed at a time; gradients of a step are added up without
  /// communication in between. 0: all at once. Who is computed together then depends on the number
  /// of ranks: an auxiliary loss and a capacity of experts, which count the tokens that are
  /// computed together, do too. Each pass has an equal share in the auxiliary loss.
  std::int64_t micro_batch = 0;
  bool loss_scale = false;  ///< for f16: nn::GradScaler
  /// On GPUs: forward and backward, the shards' communication included, are recorded as a CUDA
  /// graph in the second step and replayed from then on, with equal results (captured_step.h).
  /// Steps with a smaller batch run without. For models that need neither numbers of the host that
  /// change from step to step (dropout, loss_scale) nor the host's reading (mixtures of experts).
  bool cuda_graphs = false;
  /// Ranks that share the batch: one axis. Undefined: all of the world.
  distributed::DeviceMesh data_mesh = {};
};

class Trainer {
 public:
  /// The model is materialised. On several ranks it is sharded or replicated (parallelize.h), which
  /// averages gradients: where nobody did that, each rank trains a model of its own on its part of
  /// the batch. Throws InvalidArgument for a negative max_grad_norm or micro_batch, a data_mesh of
  /// several axes, and cuda_graphs with loss_scale, on no GPU, or on ranks that share one.
  Trainer(distributed::World& world, Task& task, nn::optim::Optimizer& optimizer,
          const TrainerOptions& options = {});

  /// Forward, backward and update on the next batch. A signal that asks the run to end does not cut
  /// it short: the metrics have it, for all ranks alike. Collective. Throws StateError, on every
  /// rank alike, when the loss or the gradient norm is not a finite number, naming the first tensor
  /// that is not (first_bad_tensor.h); parameters are then those of before the step. With a loss
  /// scale an infinite norm leaves the step out instead, until no scale above 1e-6 is left to try.
  /// With cuda_graphs also throws StateError for a layer that draws random numbers, and for what
  /// cannot be recorded (tensor/cuda/graph.h).
  StepMetrics step();

  /// As the task does it, with this trainer's step. Collective. Throws StateError as step() does
  /// when the loss is not a finite number.
  EvalMetrics evaluate();

  std::int64_t steps_done() const { return steps_done_; }
  /// Those that replayed a CUDA graph.
  std::int64_t steps_replayed() const { return captured_ ? captured_->replays() : 0; }
  double learning_rate() const { return optimizer_.lr(); }

 private:
  struct LocalStep;
  LocalStep run_step(const BatchShare& share);
  PassLosses compute_gradients(const BatchShare& share);
  void accumulate_gradients(const BatchShare& share, LocalStep& step);
  void combine_losses(const BatchShare& share, LocalStep& step) const;
  void update(LocalStep& step);
  void combine(const LocalStep& local, StepMetrics& metrics) const;
  void check_finite(const StepMetrics& metrics, const BatchShare& share);

  distributed::World& world_;
  Task& task_;
  nn::optim::Optimizer& optimizer_;
  TrainerOptions options_;
  distributed::DeviceMesh data_;
  std::shared_ptr<const nn::Mesh> mesh_;
  std::vector<nn::Parameter> parameters_;
  nn::optim::LrScheduler scheduler_;
  std::optional<nn::GradScaler> scaler_;
  std::optional<CapturedStep> captured_;  // with cuda_graphs
  std::int64_t steps_done_ = 0;
};

}  // namespace tessera::models
