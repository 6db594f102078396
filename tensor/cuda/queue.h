#pragma once

/// The implementation of a CUDA stream: order, memory and copies of one GPU stream, without the
/// toolkit's headers. For stream.cc, the allocator, and code that copies between devices.
///
/// Errors: an error that a call reports is thrown there, as OutOfMemory or DeviceError. An error of
/// work on the GPU is thrown later, by the next call or wait; after most such errors the GPU
/// accepts no more work from this process.
///
/// A queue may be used by one thread at a time, except fail() and give_back(). Marks may be shared.

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "tessera/tensor/device.h"

struct CUstream_st;  // of the CUDA runtime

namespace tessera::cuda {

class Replays;

/// A point of a queue that other queues and the host can wait for.
class Mark {
 public:
  Mark() = default;
  virtual ~Mark() = default;
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  virtual bool reached() const = 0;
  /// The host waits for the mark.
  virtual void await() const = 0;
  /// The same; then rethrows the failure of a closure of its queue, or a kernel's fault (see
  /// faults.h), at each call.
  virtual void synchronize() const = 0;
};

class Queue {
 public:
  Queue() = default;
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  virtual CUstream_st* handle() const = 0;
  /// The closure runs on a driver thread, under the caller's RankContext. It must make no CUDA
  /// calls, and neither hold nor free tensors. If it throws, later closures are skipped while work
  /// on the GPU continues; RankContext::report_failure is called, and the next host wait rethrows.
  /// `name` must outlive the closure.
  virtual void run(const char* name, std::function<void()> work) = 0;
  virtual std::shared_ptr<const Mark> record() = 0;
  /// Later work of this queue runs after the mark, which may be of any GPU.
  virtual void wait(const Mark& mark) = 0;
  /// Records a failure of this queue's work that was found elsewhere: host waits rethrow it like a
  /// closure's. Thread-safe.
  virtual void fail(std::exception_ptr error) noexcept = 0;
  /// Adds a host-wait callback. Host waits call it when their work has ended, before they check for
  /// failures; it may call fail(). It returns false if it need not be called again.
  virtual void add_witness(std::function<bool()> witness) = 0;
  /// The graph into which the calling thread's work on this queue is captured; null: the work runs.
  virtual std::shared_ptr<Replays> captured_into() const = 0;
  /// The graph is replayed on this queue: host waits also report failures of its work.
  virtual void follow(const Replays& replays) = 0;
  /// The host waits; rethrows the failure of a closure or of a kernel, once.
  virtual void synchronize() = 0;
  /// The stream sleeps for this time.
  virtual void sleep(double milliseconds) = 0;

  /// Memory that later work of this queue may use; null if there is no memory. The queue lives as
  /// long as its memory is in use.
  virtual void* take(std::size_t bytes) = 0;
  /// Returns memory in stream order: earlier work may still use it. Thread-safe.
  virtual void give_back(void* data) noexcept = 0;
  /// Whether work issued now may reuse a block allocated here. False for memory allocated in an
  /// earlier capture and, during a capture, for memory allocated before it, because replays use
  /// both again.
  virtual bool may_reuse(void* data) const = 0;
  virtual void fill_bytes(void* to, unsigned char byte, std::size_t bytes) = 0;

  /// Copies from host memory, which may change as soon as the call returns. Staged through pinned
  /// memory; the host waits only if many such copies are running.
  virtual void copy_from_host(void* to, const void* from, std::size_t bytes) = 0;
  /// Copies to host memory; the host waits for it, as by synchronize().
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  /// Copies between two GPU addresses, on one GPU or two.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// Whether kernels of this GPU can read and write memory of GPU `other` (peer access).
  virtual bool reaches(int other) const = 0;
};

/// A new stream of the GPU. Throws DeviceError in a build without CUDA, and if the GPU does not
/// exist or cannot be used.
std::shared_ptr<Queue> start_queue(Device device, const std::string& name);

}  // namespace tessera::cuda
