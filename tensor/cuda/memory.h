#pragma once

/// Whether there are GPUs to compute on, and what this process holds of their memory. Tessera's
/// blocks come from one pool of the driver for each GPU, which keeps what was given back.

#include <cstddef>
#include <string>

#include "tessera/tensor/device.h"

namespace tessera {

/// Why this process cannot compute on GPUs, in one line with what to do; empty where it can, on one
/// at least. Asks driver and toolkit, once.
std::string cuda_problem();
/// The same of cuda:`device`, by name where it is that GPU alone: an old one beside a new one.
std::string cuda_problem(int device);

namespace cuda {
/// Page-locked memory of the host, for every GPU, to be kept by who takes it: null where there is
/// no room. Throws DeviceError where there is no GPU.
void* take_pinned(std::size_t bytes);
}  // namespace cuda

struct CudaMemory {
  std::size_t reserved = 0;       ///< taken from the GPU, kept memory included
  std::size_t reserved_peak = 0;  ///< the most since the process began
  std::size_t in_use = 0;         ///< in blocks; returned ones count until their stream gets there
  std::size_t in_use_peak = 0;
};
/// Throws DeviceError where there is no such GPU.
CudaMemory cuda_memory(Device device);
/// Waits for the work of all Tessera streams of the GPU, but for those that a CUDA graph is being
/// captured on, then returns kept memory to it. Throws DeviceError.
void empty_cuda_cache(Device device);

}  // namespace tessera
