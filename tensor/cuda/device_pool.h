#pragma once

/// The driver's stream-ordered pool that all blocks of one GPU come from. Private to this folder.

#include <cstddef>
#include <mutex>
#include <set>

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

  /// A stream that memory may go back on, from when it is made until before it is destroyed.
  void add(CUstream_st* stream);
  void remove(CUstream_st* stream) noexcept;

  /// Memory that work of `stream` may use from here on. Where there is no room it trims first; null
  /// when there is none then.
  void* take(std::size_t bytes, CUstream_st* stream);
  /// Memory that any stream may use at once; else as take(). May be called while streams are
  /// captured.
  void* take_now(std::size_t bytes);
  /// The host waits for the stream; what went back there is for take_now() too.
  void settle(CUstream_st* stream);
  CudaMemory memory() const;
  /// Gives the GPU what is not in use. The host waits for all streams but those that are being
  /// captured by any thread: to wait for these is an error, which ends their capture.
  void trim();
  /// As long as it is held, no trim looks which streams are being captured: streams join a capture
  /// under it.
  std::unique_lock<std::mutex> hold_off_trims();

 private:
  void share_with_peers();
  void* try_take(std::size_t bytes, CUstream_st* stream);
  void await_streams();

  const int device_;
  CUmemPoolHandle_st* pool_ = nullptr;
  CUstream_st* own_stream_ = nullptr;   // of take_now()
  CUstream_st* gone_stream_ = nullptr;  // behind the work of streams that were removed
  CUstream_st* trim_stream_ = nullptr;  // behind all of them; take_now() does not wait for it
  std::mutex mutex_;
  std::set<CUstream_st*> streams_;
};

}  // namespace tessera::cuda
