#pragma once

/// Which GPU each rank of a host computes on, and what carries its tensors. Pure functions of the
/// options and of what the machine has.

#include <string>
#include <vector>

#include "tessera/distributed/launch.h"

namespace tessera::distributed {

/// What decides; made-up ones test it.
struct GpuFacts {
  int gpus = 0;           ///< of this host
  bool has_nccl = true;   ///< the build has
  std::string problem{};  ///< cuda_problem()
};
GpuFacts facts_of_this_host();

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
