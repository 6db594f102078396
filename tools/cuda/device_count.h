#pragma once

/// How many GPUs this process can use.

namespace tessera::cuda {

/// The GPUs that the driver offers; 0 without a driver, and in a build without CUDA. Asks the
/// driver itself, which a program that is linked against it could not do without. In a build for
/// the emulated GPU: how many there are of it.
int device_count() noexcept;

}  // namespace tessera::cuda
