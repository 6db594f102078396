#pragma once

/// The number of GPUs that this process can use.

namespace tessera::cuda {

/// The number of GPUs that the driver offers; 0 without a driver, and in a build without CUDA.
/// Loads the driver at run time: a program linked against it would not start without one. In a
/// build for the emulated GPU, the number of emulated GPUs.
int device_count() noexcept;

}  // namespace tessera::cuda
