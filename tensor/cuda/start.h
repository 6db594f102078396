#pragma once

/// Kernel launches. All .cu files launch this way, which also works in a build that runs kernels on
/// the CPU.

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "tessera/tensor/cuda/check_cuda.h"

namespace tessera::cuda {

struct Grid {
  dim3 blocks = 1;
  dim3 threads = 1;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory; see dynamic_shared()
};

/// Launches `kernel` on `stream` of the current GPU. `name` is the operation, for errors. Throws
/// DeviceError if the launch itself fails.
template <class... Parameters, class... Arguments>
void start(const char* name, void (*kernel)(Parameters...), const Grid& grid, CUstream_st* stream,
           Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
#if defined(TESSERA_EMULATED_GPU)
  check_cuda(emulated_launch(config, name, kernel, std::forward<Arguments>(arguments)...), name,
             "cudaLaunchKernel");
#else
  check_cuda(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name,
             "cudaLaunchKernel");
#endif
}

/// The same for a block that needs more than 48 KiB of dynamic shared memory: each launch first
/// requests it from the driver, which costs well under a microsecond.
template <class... Parameters, class... Arguments>
void start_with_much_shared(const char* name, void (*kernel)(Parameters...), const Grid& grid,
                            CUstream_st* stream, Arguments&&... arguments) {
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(grid.shared_bytes)),
             name, "cudaFuncSetAttribute");
  start(name, kernel, grid, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace tessera::cuda
