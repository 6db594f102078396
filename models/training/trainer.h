#pragma once

/// Trains a model on all ranks of a world together.
///
///     LanguageTask task(world, language_model(model), ...);
///     nn::optim::AdamW optimizer(model.parameters(), {...});
///     Trainer trainer(world, task, optimizer, {.seed = 1});
///     for (...) StepMetrics metrics = trainer.step();
///
/// The samples of a step depend only on the task and are split over the ranks by the chunk rule, so
/// a rank may have none. The loss is the mean over all of them, for any split. Random numbers of a
/// step (dropout) depend only on seed, step and sample. Equal seeds and batches therefore give
/// equal losses on any number of ranks, up to rounding. Every rank makes the same calls. Only the
/// rank's own thread may use it. It must not outlive its constructor's arguments.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/distributed/launch/world.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/models/training/captured_step.h"
#include "tessera/models/training/metrics.h"
#include "tessera/models/training/task.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/state/state_dict.h"
#include "tessera/nn/training/grad_scaler.h"

namespace tessera::models {

struct TrainerOptions {
  nn::optim::Schedule schedule = nn::optim::constant();  ///< of the optimizer's lr, over the whole
                                                         ///< run
  std::uint64_t seed = 1;                                ///< of dropout
  double max_grad_norm = 0;  ///< gradients are clipped to this total norm; 0: never
  /// The number of a rank's samples per pass; gradients of a step's passes accumulate without
  /// communication. 0: all samples in one pass. Which samples share a pass then depends on the
  /// number of ranks, and so do a mixture-of-experts model's auxiliary loss and expert capacity,
  /// which are computed per pass. All passes have equal weight in the auxiliary loss.
  std::int64_t micro_batch = 0;
  bool loss_scale = false;  ///< for f16: nn::GradScaler
  /// On GPUs: the second step's forward and backward, including the shards' communication, are
  /// captured as a CUDA graph that later steps replay, with equal results (captured_step.h).
  /// Smaller batches run without it. Not for models that use host numbers which change from step to
  /// step (dropout, loss_scale), or that read values on the host (mixtures of experts).
  bool cuda_graphs = false;
  /// The ranks that share the batch: one axis. Undefined: the whole world.
  distributed::DeviceMesh data_mesh = {};
};

class Trainer {
 public:
  /// The model must be materialized. On several ranks it must be sharded or replicated
  /// (parallelize.h), which averages gradients; otherwise each rank trains a model of its own on
  /// its part of the batch. Throws InvalidArgument for a negative max_grad_norm or micro_batch, a
  /// data_mesh of several axes, and cuda_graphs with loss_scale, without a GPU, or on ranks that
  /// share a GPU.
  Trainer(distributed::World& world, Task& task, nn::optim::Optimizer& optimizer,
          const TrainerOptions& options = {});

  /// Forward, backward and update on the next batch. A signal that asks the run to end does not
  /// interrupt the step: the metrics report it, equally on all ranks. Collective. Throws StateError
  /// on every rank if the loss or the gradient norm is NaN or infinite, naming the first such
  /// tensor (first_bad_tensor.h); parameters are then those before the step. With a loss scale, an
  /// infinite norm skips the step instead, until the scale would fall below 1e-6. With cuda_graphs
  /// also throws StateError for a layer that draws random numbers, and for operations that cannot
  /// be captured (tensor/cuda/graph.h).
  StepMetrics step();

  /// The task's evaluation, with this trainer's step number. Collective. Throws StateError like
  /// step() if the loss is NaN or infinite.
  EvalMetrics evaluate();

  /// What a checkpoint of this run holds (fsdp/checkpoint): the model, the optimizer, the schedule, the
  /// loss scale, and in `values`, beside entries of the caller's own, "trainer.step" and
  /// "trainer.data", the task's data_fingerprint(). It refers to the trainer and to `values`. Collective.
  ///
  ///     nn::StateDict values;
  ///     checkpoint::save("run/checkpoints/step-7", trainer.checkpoint_state(values));
  checkpoint::State checkpoint_state(nn::StateDict& values);
  /// After a load into checkpoint_state(values): the next step is the one behind the saved one, with
  /// the samples and random numbers that the saved run would have had. Throws StateError unless it comes
  /// before the first step, and InvalidArgument on all ranks for values of another program, and for data
  /// or an order of samples that differ from those of the saved run, with both fingerprints. Collective.
  void resume(const nn::StateDict& values);

  /// The optimizer's.
  const std::vector<nn::Parameter>& parameters() const { return parameters_; }
  std::int64_t steps_done() const { return steps_done_; }
  /// Number of steps that replayed a CUDA graph.
  std::int64_t steps_replayed() const { return captured_ ? captured_->replays() : 0; }
  double learning_rate() const { return optimizer_.lr(); }

 private:
  struct LocalStep;
  LocalStep run_step(const BatchShare& share);
  PassLosses compute_gradients(const BatchShare& share);
  PassLosses accumulate_gradients(const BatchShare& share);
  static void read_losses(const PassLosses& losses, LocalStep& step);
  void combine_losses(const BatchShare& share, LocalStep& step) const;
  void update(const Tensor& norm, LocalStep& step);
  void combine(const LocalStep& local, StepMetrics& metrics) const;
  const std::string& data_fingerprint();
  void check_finite(const StepMetrics& metrics, const BatchShare& share);

  distributed::World& world_;
  Task& task_;
  nn::optim::Optimizer& optimizer_;
  TrainerOptions options_;
  distributed::DeviceMesh data_mesh_;
  std::shared_ptr<const nn::Mesh> mesh_;
  std::vector<nn::Parameter> parameters_;
  nn::optim::LrScheduler scheduler_;
  std::optional<nn::GradScaler> scaler_;
  std::optional<CapturedStep> captured_;  // only with cuda_graphs
  std::optional<std::string>
      data_fingerprint_;  // the task's data_fingerprint(), once it was asked for
  std::int64_t steps_done_ = 0;
};

}  // namespace tessera::models
