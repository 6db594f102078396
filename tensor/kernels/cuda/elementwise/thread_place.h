#pragma once

/// The running thread's index in its launch, and the launch configuration for walk.h's share(). For
/// .cu files.

#include <cstdint>

#include "tessera/tensor/cuda/start.h"
#include "tessera/tensor/kernels/cuda/elementwise/walk.h"

namespace tessera::cuda {

/// Enough blocks of kThreads for `work` pieces; see share().
inline Grid grid_for(std::int64_t work) {
  return {.blocks = blocks_for(work), .threads = kThreads};
}

__device__ inline std::int64_t thread_index() {
  return blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
}
__device__ inline std::int64_t thread_count() { return gridDim.x * std::int64_t{blockDim.x}; }

}  // namespace tessera::cuda
