#pragma once

/// The driver's stream-ordered pool that all blocks of one GPU come from. Private to this folder.

#include <cstddef>
#include <mutex>

#include "tessera/tensor/cuda/memory.h"

struct CUmemPoolHandle_st;  // of the CUDA runtime
struct CUstream_st;

namespace tessera::cuda {

/// Thread-safe.
class DevicePool {
 public:
  /// Made at the first call, then kept for good. Throws DeviceError where there is no such GPU, or
  /// one that Tessera cannot use.
  static DevicePool& of(int device);
  explicit DevicePool(int device);
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  /// Memory that work of `stream` may use from here on; null when there is no room.
  void* take(std::size_t bytes, CUstream_st* stream);
  /// Memory that any stream may use at once; null when there is no room. Waits for no stream but
  /// its own, so that it may be called while others are captured.
  void* take_now(std::size_t bytes);
  /// The host waits for the stream; what went back there is for take_now() too.
  void settle(CUstream_st* stream);
  CudaMemory memory() const;
  void trim();

 private:
  void share_with_peers();
  void* try_take(std::size_t bytes, CUstream_st* stream);
  CUstream_st* own_stream();

  const int device_;
  CUmemPoolHandle_st* pool_ = nullptr;
  std::mutex mutex_;
  CUstream_st* own_stream_ = nullptr;  // of take_now()
};

}  // namespace tessera::cuda
