#pragma once

/// The driver's stream-ordered memory pool from which all blocks of one GPU come. Private to this
/// folder.

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
  /// Created at the first call, and never destroyed. Throws DeviceError if the GPU does not exist
  /// or Tessera cannot use it.
  static DevicePool& of(int device);
  explicit DevicePool(int device);
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  /// Registers a stream on which memory may be returned; from its creation until before its
  /// destruction.
  void add(CUstream_st* stream);
  void remove(CUstream_st* stream) noexcept;

  /// Memory that later work of `stream` may use. If there is no memory, trims and tries again; null
  /// if that fails too.
  void* take(std::size_t bytes, CUstream_st* stream);
  /// Memory that any stream may use at once; otherwise as take(). May be called while streams are
  /// captured.
  void* take_now(std::size_t bytes);
  /// The host waits for the stream; take_now() may then reuse memory that was returned there.
  void settle(CUstream_st* stream);
  CudaMemory memory() const;
  /// Returns unused memory to the GPU. The host waits for all streams except those that any thread
  /// is capturing: waiting for these is an error that ends their capture.
  void trim();
  /// While the lock is held, no trim checks which streams are being captured. Streams join a
  /// capture under it.
  std::unique_lock<std::mutex> hold_off_trims();

 private:
  void share_with_peers();
  void* try_take(std::size_t bytes, CUstream_st* stream);
  void await_streams();

  const int device_;
  CUmemPoolHandle_st* pool_ = nullptr;
  CUstream_st* own_stream_ = nullptr;   // used by take_now()
  CUstream_st* gone_stream_ = nullptr;  // ordered after the work of streams that were removed
  CUstream_st* trim_stream_ = nullptr;  // ordered after all; take_now() does not wait for it
  std::mutex mutex_;
  std::set<CUstream_st*> streams_;
};

}  // namespace tessera::cuda
