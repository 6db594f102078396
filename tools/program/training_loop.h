#pragma once

/// The steps of a run, the same for every model: training, evaluations, and what rank 0 shows.

#include "tessera/distributed/world.h"
#include "tessera/models/task.h"
#include "tessera/models/trainer.h"
#include "tessera/tools/program/run_report.h"
#include "tessera/tools/program/train_options.h"

namespace tessera::tools {

/// Steps of the whole run.
std::int64_t total_steps(const TrainOptions& options, const models::Task& task);

/// Trains `steps` steps, evaluating in between as the options say, and once at the end. `report` is
/// rank 0's, null on the others. Collective.
void run_training(distributed::World& world, models::Trainer& trainer, const TrainOptions& options,
                  std::int64_t steps, RunReport* report);

}  // namespace tessera::tools
