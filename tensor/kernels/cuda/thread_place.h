#pragma once

/// The running thread's place in its launch. For .cu files.

#include <cstdint>

namespace tessera::cuda {

__device__ inline std::int64_t thread_index() {
  return blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
}
__device__ inline std::int64_t thread_count() { return gridDim.x * std::int64_t{blockDim.x}; }

}  // namespace tessera::cuda
