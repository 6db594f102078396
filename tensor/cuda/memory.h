#pragma once

/// Whether GPUs can be used, and how much of their memory this process holds. Tessera's blocks come
/// from one driver memory pool for each GPU, which caches returned blocks.

#include <cstddef>
#include <string>

#include "tessera/tensor/device.h"

namespace tessera {

/// The reason why this process cannot use any GPU, in one line with what to do; empty if it can use
/// at least one. Queries driver and toolkit once.
std::string cuda_problem();
/// The same for cuda:`device`. Names the GPU if only this one is unusable: an old one beside a new
/// one.
std::string cuda_problem(int device);

namespace cuda {
/// Page-locked host memory for every GPU, which cannot be returned; null if there is no memory.
/// Throws DeviceError if there is no GPU.
void* take_pinned(std::size_t bytes);
}  // namespace cuda

struct CudaMemory {
  std::size_t reserved = 0;       ///< allocated from the GPU, including cached memory
  std::size_t reserved_peak = 0;  ///< the maximum since the process began
  std::size_t in_use = 0;         ///< in blocks; a returned block counts until its stream reaches
                                  ///< that point
  std::size_t in_use_peak = 0;
};
/// Throws DeviceError if the GPU does not exist.
CudaMemory cuda_memory(Device device);
/// Waits for the work of all Tessera streams of the GPU, except those that are being captured into
/// a CUDA graph, then returns cached memory to the GPU. Throws DeviceError.
void empty_cuda_cache(Device device);

}  // namespace tessera
