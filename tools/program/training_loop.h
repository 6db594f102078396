#pragma once

/// The steps of a run, the same for every model: training, evaluations, and rank 0's output.

#include "tessera/distributed/launch/world.h"
#include "tessera/models/training/task.h"
#include "tessera/models/training/trainer.h"
#include "tessera/tools/program/options/train_options.h"
#include "tessera/tools/program/run_report.h"

namespace tessera::tools {

/// The number of steps of the whole run.
std::int64_t total_steps(const TrainOptions& options, const models::Task& task);

/// How a run ended.
struct TrainingEnd {
  std::int64_t steps = 0;  ///< steps that were run
  int signal = 0;          ///< the signal that ended it early, equal on all ranks; else 0
};
/// Trains `steps` steps, with evaluations in between as the options say and one at the end. After a
/// signal (World::stop_signal) the run ends after the current step, or before the first one,
/// without that last evaluation. `report` is rank 0's, null on the others. Collective.
TrainingEnd run_training(distributed::World& world, models::Trainer& trainer,
                         const TrainOptions& options, std::int64_t steps, RunReport* report);

}  // namespace tessera::tools
