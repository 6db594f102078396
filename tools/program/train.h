#pragma once

/// `tessera train`.

#include "tessera/distributed/launch/gpu_plan.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tools/program/options/train_options.h"

namespace tessera::tools {

/// What a run needs of the machine it is on; made-up ones test it.
struct Machine {
  CpuFlags cpu;
  distributed::GpuFacts gpus{};
};
/// What the options need to be known; GPUs are asked for only where they will be used.
Machine this_machine(const TrainOptions& options);

/// Throws CannotStart when the machine cannot do what the options ask, saying what is missing.
void check_machine(const TrainOptions& options, const Machine& machine);

/// Trains on all ranks and returns the exit code: 0; 1 after a rank failed and the failure was
/// printed; 128 + signal after a signal ended the run early, which then is said in the last line.
/// In a process that is a rank it does not return. Throws CannotStart before anything is started,
/// Error for data that cannot be read or a folder that cannot be written.
int train(const TrainOptions& options, int argc, char** argv);

/// What a rank of each kind of model does; `options` are complete.
using RankBody = std::function<void(distributed::World&)>;
RankBody mlp_body(const TrainOptions& options);
RankBody language_body(const TrainOptions& options);

}  // namespace tessera::tools
