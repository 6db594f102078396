#pragma once

/// What this process holds of a GPU's memory. Tessera's blocks come from one pool of the driver for
/// each GPU, which keeps what was given back.

#include <cstddef>

#include "tessera/tensor/device.h"

namespace tessera {

struct CudaMemory {
  std::size_t reserved = 0;       ///< taken from the GPU, kept memory included
  std::size_t reserved_peak = 0;  ///< the most since the process began
  std::size_t in_use = 0;         ///< in blocks; returned ones count until their stream gets there
  std::size_t in_use_peak = 0;
};
/// Throws DeviceError where there is no such GPU.
CudaMemory cuda_memory(Device device);
/// Waits for all work on the GPU, then returns kept memory to it. Throws DeviceError.
void empty_cuda_cache(Device device);

}  // namespace tessera
