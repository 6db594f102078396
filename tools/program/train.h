#pragma once

/// `tessera train`: the command, and the loop over steps.

#include <functional>

#include "tessera/distributed/launch/gpu_plan.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/distributed/launch/world.h"
#include "tessera/models/runs/train_options.h"
#include "tessera/models/training/task.h"
#include "tessera/models/training/trainer.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tools/program/checkpoints.h"
#include "tessera/tools/program/run_report.h"

namespace tessera::tools {

/// The machine's properties that a run depends on. Tests make up their own.
struct Machine {
  CpuFlags cpu;
  distributed::GpuFacts gpus{};
};
/// The properties that the options depend on. GPUs are queried only if they will be used.
Machine this_machine(const models::runs::TrainOptions& options);

/// Throws CannotStart if the machine cannot run the options, saying what is missing.
void check_machine(const models::runs::TrainOptions& options, const Machine& machine);

/// Trains on all ranks and returns the exit code: 0; 1 after a rank failed and the failure was
/// printed; 128 + signal if a signal ended the run early, which the last line says. Does not return
/// in a rank process. Throws CannotStart before anything is started, and Error for unreadable data
/// or a folder that cannot be written.
int train(const models::runs::TrainOptions& options, int argc, char** argv);

/// The function that each rank runs, for each kind of model. `options` are complete.
using RankBody = std::function<void(distributed::World&)>;
RankBody mlp_body(const models::runs::TrainOptions& options);
RankBody language_body(const models::runs::TrainOptions& options);

// The steps of a run, the same for every model: training, evaluations, and rank 0's output.

/// The number of steps of the whole run.
std::int64_t total_steps(const models::runs::TrainOptions& options, const models::Task& task);

/// Writes the weights into the folder of the options, if they name one: rank 0 writes the file;
/// gathering the state is collective.
void save_model(distributed::World& world, const models::runs::TrainOptions& options,
                nn::Module& module);

/// How a run ended.
struct TrainingEnd {
  std::int64_t steps = 0;  ///< the last step that was run; 0: none was
  int signal = 0;          ///< the signal that ended it early, equal on all ranks; else 0
};
/// Trains `steps` steps, with evaluations in between as the options say and one at the end. After a
/// signal (World::stop_signal) the run ends after the current step, or before the first one,
/// without that last evaluation. `report` is rank 0's, null on the others. Collective.
/// `checkpoints` are resumed; those steps do not run again. `measure_peak`, if there is one, runs
/// after the first step, if another one follows: it is collective, and returns the operations per
/// second that the report compares with (RunReport::set_peak).
TrainingEnd run_training(distributed::World& world, models::Trainer& trainer,
                         Checkpoints& checkpoints, const models::runs::TrainOptions& options,
                         std::int64_t steps, RunReport* report,
                         const std::function<double()>& measure_peak = {});

/// False if a resumed run has had all of its steps. `report` says where a resumed run is.
bool goes_on(const ResumedFrom& from, std::int64_t steps, RunReport* report);

/// The message for a run that a signal ended before its last step.

/// "interrupted after step 7; ..." with the files that are kept and their use, or "interrupted
/// before the first step; ...".
std::string interruption_text(const models::runs::TrainOptions& options,
                              const distributed::LaunchResult& result);

}  // namespace tessera::tools
