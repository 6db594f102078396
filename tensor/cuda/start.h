#pragma once

/// Launching a kernel: the one way in which .cu files do it, which also a build that runs kernels
/// on the CPU understands.

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

/// Issues `kernel` on `stream` of the current GPU. `name` stands in errors: the operation's. Throws
/// DeviceError for what the launch itself reports.
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

/// The same where a block needs more than 48 KiB of dynamic shared memory: asks the driver for it
/// first, at each launch, which costs well under a microsecond.
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
