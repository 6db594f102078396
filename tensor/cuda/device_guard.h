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

struct CUstream_st;  // of the CUDA runtime

namespace tessera::cuda {

// Checks for streams that are being captured, by Tessera or by other code, and a guard for calls
// that must not break a capture. For this folder and for code that issues CUDA work itself.

/// Whether work issued on the stream is captured into a graph instead of running. Throws
/// DeviceError tagged `where`.
bool is_capturing(CUstream_st* stream, const char* where);

/// Until the end of the scope, the calling thread may make calls that would otherwise break a
/// capture, its own or another thread's, although they do not concern the captured work: issuing
/// eager work, allocating memory (cudaThreadExchangeStreamCaptureMode).
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_;
};

}  // namespace tessera::cuda
