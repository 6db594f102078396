#pragma once

/// The steps of a run, the same for every model: training, evaluations, and what rank 0 shows.

#include "tessera/distributed/launch/world.h"
#include "tessera/models/training/task.h"
#include "tessera/models/training/trainer.h"
#include "tessera/tools/program/options/train_options.h"
#include "tessera/tools/program/run_report.h"

namespace tessera::tools {

/// Steps of the whole run.
std::int64_t total_steps(const TrainOptions& options, const models::Task& task);

/// How far a run came.
struct TrainingEnd {
  std::int64_t steps = 0;  ///< done
  int signal = 0;          ///< that asks it to end early; equal on all ranks
};
/// Trains `steps` steps, evaluating in between as the options say, and once at the end. A signal
/// that asks the run to end (World::stop_signal) lets it end after the step in progress, or before
/// the first one, without that last evaluation. `report` is rank 0's, null on the others.
/// Collective.
TrainingEnd run_training(distributed::World& world, models::Trainer& trainer,
                         const TrainOptions& options, std::int64_t steps, RunReport* report);

}  // namespace tessera::tools
