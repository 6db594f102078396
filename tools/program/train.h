#pragma once

/// `tessera train`.

#include "tessera/distributed/launch/gpu_plan.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tools/program/options/train_options.h"

namespace tessera::tools {

/// The machine's properties that a run depends on. Tests make up their own.
struct Machine {
  CpuFlags cpu;
  distributed::GpuFacts gpus{};
};
/// The properties that the options depend on. GPUs are queried only if they will be used.
Machine this_machine(const TrainOptions& options);

/// Throws CannotStart if the machine cannot run the options, saying what is missing.
void check_machine(const TrainOptions& options, const Machine& machine);

/// Trains on all ranks and returns the exit code: 0; 1 after a rank failed and the failure was
/// printed; 128 + signal if a signal ended the run early, which the last line says. Does not return
/// in a rank process. Throws CannotStart before anything is started, and Error for unreadable data
/// or a folder that cannot be written.
int train(const TrainOptions& options, int argc, char** argv);

/// The function that each rank runs, for each kind of model. `options` are complete.
using RankBody = std::function<void(distributed::World&)>;
RankBody mlp_body(const TrainOptions& options);
RankBody language_body(const TrainOptions& options);

}  // namespace tessera::tools
