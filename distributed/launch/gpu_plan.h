#pragma once

/// The GPU that each rank of a host computes on, and the transport of its tensors. Pure functions
/// of the options and of the machine's description, except facts_of_this_host().

#include <map>
#include <string>
#include <vector>

#include "tessera/distributed/launch/launch.h"

namespace tessera::distributed {

/// What decides; made-up ones test it.
struct GpuFacts {
  int gpus = 0;           ///< of this host
  bool has_nccl = true;   ///< the build has
  std::string problem{};  ///< cuda_problem()
  /// GPUs that cannot be used though others can, with cuda_problem() of each.
  std::map<int, std::string> refused{};
};
/// For a run with these options. It may be the process's first call of CUDA, and has to be where
/// needs_eager_kernels(): it chooses how kernels are loaded. Call it before there are threads.
GpuFacts facts_of_this_host(const LaunchOptions& options);

/// Whether all kernels must be on the GPUs before the ranks begin. CUDA loads a kernel at its first
/// launch, under a lock of the process, and may wait for the GPU before it does. If a collective
/// runs there meanwhile, it waits for a rank that is a thread of the same process and may stand at
/// that lock: nothing goes on. Ranks that are processes have a lock each.
bool needs_eager_kernels(const LaunchOptions& options, bool has_nccl);

/// The options as they are for a rank that another launcher has started: where it shows each rank one
/// GPU only (srun --gpus-per-task=1), each is alone with it.
LaunchOptions with_gpus_of_launcher(const LaunchOptions& options, const GpuFacts& facts);

struct GpuPlan {
  std::vector<int> gpus{};  ///< for the ranks of this host in turn
  bool by_nccl = false;     ///< else rank threads read each other's memory
};

/// Why a run with these options cannot start on GPUs, in one line with what to do; empty where it
/// can, and for other devices than GPUs.
std::string gpu_shortage(const LaunchOptions& options, const GpuFacts& facts);

/// For options without a shortage. NCCL connects processes, and threads where each has a GPU of its
/// own; one rank alone needs it not.
GpuPlan plan_gpus(const LaunchOptions& options, const GpuFacts& facts);

}  // namespace tessera::distributed
