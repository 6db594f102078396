#pragma once

/// Streams and events: the order of work on every device.
///
/// A stream is a sequence of closures that run one after another. On the CPU it is *inline* (work
/// runs on the calling thread, at once) or *queued* (it has one worker thread; the host runs ahead,
/// as on a GPU). On a GPU it is a CUDA stream, always queued. On the null device work is dropped.
/// Streams are ordered relative to each other by events only, also the streams of one thread:
///
///     DeviceEvent gathered = gather.record();   // a mark after everything issued to gather so far
///     compute.wait(gathered);             // later work of compute runs after the mark
///
/// Failure: an exception in a queued closure *poisons* its stream. Later closures are skipped. The
/// stream's events still fire and carry the error; streams that wait for such an event are poisoned
/// too. RankContext::report_failure is called, and the next host wait (synchronize) rethrows the
/// error. Tessera's own exceptions are rethrown as they are. Others are nested in an Error with the
/// names of the closure and the stream. DeviceEvent::synchronize rethrows its mark's error at each call,
/// and leaves the stream poisoned. An inline closure just throws; nothing is poisoned.
///
/// Failure on a GPU: a failed closure skips later closures only. Kernels already launched run, here
/// and on streams that wait. report_failure is called and host waits rethrow as above. An error
/// that the GPU reports is a DeviceError at the next call or wait. If a kernel finds its input
/// invalid (for example an index out of range), it skips the invalid part and goes on; the
/// exception that the CPU would throw at the call is thrown by the next host wait for the kernel's
/// stream: DeviceStream::synchronize, DeviceEvent::synchronize, or a copy to the host (to_vector, item).
/// report_failure is called at that wait.
///
/// Waits between CPU and GPU streams: a CPU stream waits for a GPU's event as for a CPU's; a GPU
/// stream waits for a CPU's event on the host, during the call.
///
/// DeviceStream and DeviceEvent are shared handles: copies refer to the same object. A stream may be used by
/// one thread at a time; events may be shared between threads.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tessera/tensor/device.h"

struct CUstream_st;

namespace tessera {

namespace cuda {
class Queue;
}

enum class StreamKind : std::uint8_t { kInline, kQueued };

class DeviceEvent;

class DeviceStream {
 public:
  DeviceStream() = default;  ///< null handle
  /// A new stream. Destroying the last handle of a queued stream finishes its work, then joins its
  /// thread. On a worker thread of a stream, the destructor does not wait; the thread ends by
  /// itself. A GPU's stream is kQueued regardless of `kind`, and its work continues after the last
  /// handle is gone. Throws DeviceError for a GPU that does not exist, also in a build without
  /// CUDA.
  static DeviceStream create(Device device, StreamKind kind, std::string name);

  bool defined() const { return impl_ != nullptr; }
  std::uint64_t id() const;  ///< unique in the process
  const std::string& name() const;
  Device device() const;
  StreamKind kind() const;

  /// Appends a closure. It runs under the issuing thread's RankContext, sees none of its other
  /// thread-local variables, and must not allocate tensor memory. `name` appears in error messages.
  /// On a GPU's stream it runs on a driver thread (as with cudaLaunchHostFunc), and must not call
  /// CUDA nor drop tensors on a GPU.
  void enqueue(const char* name, std::function<void()> work) const;
  /// Later work of this stream runs after the event's latest record *at the time of this call*.
  /// Throws StateError for an event that was never recorded. On an inline stream the host waits
  /// here.
  void wait(const DeviceEvent& event) const;
  /// A new event, recorded now.
  DeviceEvent record(std::string event_name = {}) const;
  /// The host waits until everything issued so far has run; rethrows the stream's failure, once.
  /// The stream is usable again afterwards.
  void synchronize() const;

  /// The cudaStream_t of a CUDA stream. Throws StateError for streams of other devices.
  struct CUstream_st* cuda_handle() const;
  /// Its queue, for copies between devices; see cuda/queue.h. Throws as cuda_handle().
  cuda::Queue& cuda_queue() const;

  bool operator==(const DeviceStream& other) const { return impl_ == other.impl_; }

 private:
  friend class MemoryBlock;
  friend class DeviceEvent;
  struct Impl;
  const Impl& impl() const;  // throws StateError for a null handle
  std::shared_ptr<Impl> impl_;
};

class DeviceEvent {
 public:
  /// Not recorded. `name` appears in traces and errors.
  explicit DeviceEvent(std::string name = {});

  /// Marks the current end of `stream`. An event may be recorded again; waits already issued keep
  /// the earlier mark.
  void record(const DeviceStream& stream);
  bool is_recorded() const;
  /// True if the latest mark was reached (also if it carries an error). Throws StateError if the
  /// event was never recorded.
  bool is_ready() const;
  /// The host waits for the latest mark; rethrows the error it carries. Throws StateError if the
  /// event was never recorded.
  void synchronize() const;
  std::uint64_t id() const;  ///< unique in the process
  const std::string& name() const;

 private:
  friend class DeviceStream;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// The stream that this thread's operations use on `device`. By default a stream named "default",
/// one for each thread: inline on the CPU, queued on a GPU.
const DeviceStream& current_stream(Device device);

/// Makes `stream` the thread's current one for its device until the end of the scope.
class StreamGuard {
 public:
  explicit StreamGuard(DeviceStream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  DeviceStream previous_;
  Device device_;
};

/// An operation that only takes time: the stream sleeps `milliseconds`. For tests of overlap, on
/// every device.
void stream_sleep(const DeviceStream& stream, double milliseconds);

}  // namespace tessera
