#pragma once

/// The engine of a CUDA stream: order, memory and copies of one GPU stream, without the toolkit's
/// headers. For stream.cc, the allocator, and those who move elements between devices.
///
/// Errors: what a call reports at once is thrown there, OutOfMemory or DeviceError. What work on
/// the GPU does wrong is seen later, by whoever calls next or waits; after most such errors the GPU
/// takes no more work from this process.
///
/// A queue may be used from one thread at a time, but for give_back(). Marks may be shared.

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "tessera/tensor/device.h"

struct CUstream_st;  // of the CUDA runtime

namespace tessera::cuda {

class Replays;

/// A point of a queue that work and hosts can wait for.
class Mark {
 public:
  Mark() = default;
  virtual ~Mark() = default;
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  virtual bool reached() const = 0;
  /// The host waits.
  virtual void await() const = 0;
  /// The same; rethrows the failure of a closure of its queue, or what a kernel found wrong with
  /// its input (see faults.h), as often as asked.
  virtual void synchronize() const = 0;
};

class Queue {
 public:
  Queue() = default;
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  virtual CUstream_st* handle() const = 0;
  /// The closure runs on a thread of the driver, under the caller's RankContext, and makes no CUDA
  /// calls: it neither holds nor frees tensors. When it throws, later closures are skipped, while
  /// work on the GPU goes on; the rank is told, and the next host wait rethrows. `name` must
  /// outlive it.
  virtual void run(const char* name, std::function<void()> work) = 0;
  virtual std::shared_ptr<const Mark> record() = 0;
  /// Later work runs after the mark, of any GPU.
  virtual void wait(const Mark& mark) = 0;
  /// What works on this queue has failed elsewhere: host waits rethrow it as a closure's failure.
  /// From any thread.
  virtual void fail(std::exception_ptr error) noexcept = 0;
  /// Host waits ask it, when what they wait for is over, before they look for failures: it may call
  /// fail(). It answers false when it need not be asked again.
  virtual void add_witness(std::function<bool()> witness) = 0;
  /// The graph that the calling thread's work becomes part of here; null: it runs.
  virtual std::shared_ptr<Replays> captured_into() const = 0;
  /// The graph is replayed on this queue: host waits report what goes wrong in its work.
  virtual void follow(const Replays& replays) = 0;
  /// The host waits; rethrows the failure of a closure or of a kernel, once.
  virtual void synchronize() = 0;
  /// The stream does nothing for so long.
  virtual void sleep(double milliseconds) = 0;

  /// Memory that work of this queue may use from here on; null when there is no room. The queue
  /// lives while memory is out.
  virtual void* take(std::size_t bytes) = 0;
  /// In stream order: earlier work may still use it. From any thread.
  virtual void give_back(void* data) noexcept = 0;
  /// Whether what was taken here may be used for something else by the work that is asked for now:
  /// not what an earlier capture took, nor, in a capture, what was there before it, since replays
  /// come back to both.
  virtual bool may_reuse(void* data) const = 0;
  virtual void fill_bytes(void* to, unsigned char byte, std::size_t bytes) = 0;

  /// From memory of the host, which may change as soon as the call returns. Passes through pinned
  /// memory; the host waits only when a lot of that is under way.
  virtual void copy_from_host(void* to, const void* from, std::size_t bytes) = 0;
  /// To memory of the host; the host waits for it, as by synchronize().
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  /// Between two places on GPUs, of one or of two.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// Whether kernels of this GPU can read and write memory of GPU `other`.
  virtual bool reaches(int other) const = 0;
};

/// A new stream of the GPU. Throws DeviceError in a build without CUDA, and where the GPU is
/// missing or cannot be used.
std::shared_ptr<Queue> start_queue(Device device, const std::string& name);

}  // namespace tessera::cuda
