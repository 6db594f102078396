#pragma once

/// The calling thread's current GPU (cudaSetDevice).

namespace tessera::cuda {

/// Makes GPU `device` the calling thread's current one until the end of the scope. Kernel launches
/// need it; Tessera's own operations do it themselves. If no GPU was chosen on this thread before,
/// the first guard's choice stays after its scope. Throws DeviceError.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace tessera::cuda
