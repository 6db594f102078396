#pragma once

/// The streams of the emulated GPU: each is a host thread with a queue. Private to the runtime.
///
/// Work runs as late as possible: a thread leaves the work in its queue alone until a host or
/// another stream waits for it, or until it has been there for a while
/// (TESSERA_EMULATED_PATIENCE_US, 2000). So code that forgets to wait finds the work undone, and
/// not only when two threads happen to race.

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_capture.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_order.h"

namespace tessera::emulated {

using Clock = std::chrono::steady_clock;

/// Whether work is skipped once the GPU has failed.
enum class Runs { kUnlessFailed, kAlways };

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(int device, unsigned flags);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Issues; returns the work's ticket. Tickets of a stream count from 1.
  std::uint64_t push(std::function<void()> work, Runs runs);
  std::uint64_t last_ticket() const;
  /// A host or a stream waits for the work up to `ticket`.
  void demand(std::uint64_t ticket);
  bool is_done(std::uint64_t ticket) const;
  /// Demands and waits.
  void wait_for(std::uint64_t ticket);
  /// What was issued still runs; then the thread ends.
  void close();

  /// What work of this stream, issued from now on, runs behind.
  Order order() const;
  /// Work issued from now on runs behind `order` too.
  void follow(const Order& order);

  const int device;
  const unsigned flags;
  const std::uint64_t id;
  CaptureMember capturing;  ///< guarded by capture_mutex()

 private:
  struct Task {
    std::function<void()> work;
    Runs runs;
    Clock::time_point issued_at;
  };
  void serve();
  void run(const Task& task) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::uint64_t issued_ = 0, finished_ = 0, demanded_ = 0;
  bool started_ = false, closed_ = false;
  Order order_;
};

/// Which stream a handle means.
struct Handle {
  std::shared_ptr<Stream> stream;  ///< null for the null stream
  bool valid = true;
};
Handle resolve(cudaStream_t handle);
/// Of one GPU, in the order of their creation.
std::vector<std::shared_ptr<Stream>> streams_of(int device);

/// Issues work on a stream as CUDA does: captures it, runs it at once on the null stream, or queues
/// it.
cudaError_t submit(const Handle& to, std::function<void()> work, Runs runs = Runs::kUnlessFailed);

/// The host has seen the end of everything of the GPU.
cudaError_t synchronize_device(int device);

}  // namespace tessera::emulated

/// CUDA's name for it.
struct CUstream_st final : tessera::emulated::Stream {
  using Stream::Stream;
};
