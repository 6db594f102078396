#pragma once

/// Trains an image classifier on all ranks of a world together.
///
/// The samples of a step depend on the seed alone and are split over the ranks by the chunk rule,
/// so that a rank may have none; the loss is the mean over all of them, whatever the split. Every
/// rank makes the same calls. A trainer is used by the thread of its rank, and must not outlive
/// world, model and images.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "tessera/distributed/world.h"
#include "tessera/models/batch_order.h"
#include "tessera/models/data/fashion_mnist.h"
#include "tessera/models/metrics.h"
#include "tessera/nn/mesh.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/lr_scheduler.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/optim/sgd.h"

namespace tessera::models {

/// A model of pixels [rows, 784] to logits [rows, classes].
struct Classifier {
  nn::Module& module;
  std::function<Variable(const Variable& pixels)> forward;
};

struct TrainerOptions {
  std::int64_t batch = 256;  ///< samples of a step, over all ranks
  double lr = 0.1;
  nn::optim::Schedule schedule = nn::optim::constant();  ///< of lr, over all steps
  double momentum = 0.9;
  double weight_decay = 0;
  std::uint64_t seed = 1;     ///< of the order of the samples
  DType dtype = DType::kF32;  ///< of the pixels; the model's
};

class Trainer {
 public:
  /// The model is materialised, sharded over world.mesh() or not. Throws InvalidArgument for a
  /// batch below 1 or an image set without images.
  Trainer(distributed::World& world, Classifier model, const data::ImageSet& train,
          const TrainerOptions& options);

  std::int64_t steps_per_epoch() const { return order_.steps_per_epoch(); }

  /// Forward, backward and update on the next batch. Collective. Throws StateError, on every rank,
  /// when loss or gradient norm is not a finite number.
  StepMetrics step();

  /// Loss and accuracy over all of `set`, without a trace in the model. Collective.
  EvalMetrics evaluate(const data::ImageSet& set);

 private:
  struct LocalStep;
  LocalStep run_step(std::span<const std::int64_t> local);
  void combine(const LocalStep& local, StepMetrics& metrics) const;
  std::vector<double> gather(std::span<const double> values) const;

  distributed::World& world_;
  Classifier model_;
  const data::ImageSet& train_;
  TrainerOptions options_;
  std::shared_ptr<const nn::Mesh> mesh_;
  std::vector<nn::Parameter> parameters_;
  nn::optim::SGD optimizer_;
  nn::optim::LrScheduler scheduler_;
  BatchOrder order_;
  std::int64_t steps_done_ = 0;
};

}  // namespace tessera::models
