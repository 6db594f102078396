#pragma once

/// The GPU that the CUDA runtime takes for meant, on this thread.

namespace tessera::cuda {

/// Makes GPU `device` the calling thread's current one until the end of the scope. Launches of
/// kernels need it; Tessera's own operations do it themselves. The first guard of a thread for
/// which nobody has chosen a GPU chooses it for good. Throws DeviceError.
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
