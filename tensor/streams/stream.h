#pragma once

/// Streams and events: the order of work on every device.
///
/// A stream is a sequence of closures that run one after another. On the CPU it is *inline* (work
/// runs on the caller, at once) or *queued* (one worker thread of its own; the host runs ahead, as
/// on a GPU). On a GPU it is one of the GPU's own, and always queued. On the null device work is
/// dropped. Streams of one thread know nothing of each other: order between them comes from events
/// only.
///
///     Event gathered = gather.record();   // a mark after everything that gather holds now
///     compute.wait(gathered);             // later work of compute runs after the mark
///
/// Failure: an exception in a queued closure *poisons* its stream. Later closures are skipped, its
/// events still fire and carry the error, streams that wait such an event are poisoned too,
/// RankContext::report_failure is told, and the next host wait (synchronize) rethrows. Tessera's
/// own exceptions arrive as thrown; others arrive as Error with the closure's and the stream's
/// name, the original nested in it. Event::synchronize rethrows what its mark carries, as often as
/// asked, and leaves its stream poisoned. An inline closure just throws, and nothing is poisoned.
/// On a GPU a failed closure stops closures only: what was launched runs, here and on streams that
/// wait; the rank is told and host waits rethrow as above. What the GPU itself reports is a
/// DeviceError at the next call or wait. What a kernel on a GPU finds wrong with its input, an
/// index out of range for instance, is the exception that the CPU throws at the call, but at the
/// next host wait of the kernel's stream: Stream::synchronize, Event::synchronize, a copy to the
/// host (to_vector, item). The kernel skips what is wrong and goes on; the rank is told at that
/// wait.
///
/// Waiting between a CPU's and a GPU's stream: a CPU stream waits as for its own kind; a GPU's
/// waits on the host, at the call.
///
/// Stream and Event are shared handles: copies mean the same object. A stream may be used from one
/// thread at a time; events may be shared between threads.

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

class Event;

class Stream {
 public:
  Stream() = default;  ///< null handle
  /// A new stream. The destruction of a queued stream's last handle finishes its work, then joins
  /// its thread; on the worker of a stream it does not wait, and the thread ends by itself. A GPU's
  /// stream is kQueued whatever `kind` says, and its work goes on after its last handle. Throws
  /// DeviceError for a GPU that is missing, also in a build without CUDA.
  static Stream create(Device device, StreamKind kind, std::string name);

  bool defined() const { return impl_ != nullptr; }
  std::uint64_t id() const;  ///< unique in the process
  const std::string& name() const;
  Device device() const;
  StreamKind kind() const;

  /// Appends a closure. It runs under the issuer's RankContext, sees no other thread-local of the
  /// issuer, and never allocates tensor memory. `name` stands in error messages. On a GPU's stream
  /// it runs on a thread of the driver, and must not touch GPUs nor drop tensors that are on one.
  void enqueue(const char* name, std::function<void()> work) const;
  /// Later work of this stream runs after the event's latest record *at the time of this call*.
  /// Throws StateError for an event never recorded. On an inline stream the host waits here.
  void wait(const Event& event) const;
  /// A new event, recorded now.
  Event record(std::string event_name = {}) const;
  /// Host waits until everything so far has run; rethrows the stream's failure, once. The stream is
  /// usable again after.
  void synchronize() const;

  /// The native handle of a CUDA stream. Throws StateError for streams of other devices.
  struct CUstream_st* cuda_handle() const;
  /// Its engine, for copies between devices; see cuda/queue.h. Throws as cuda_handle().
  cuda::Queue& cuda_queue() const;

  bool operator==(const Stream& other) const { return impl_ == other.impl_; }

 private:
  friend class Block;
  friend class Event;
  struct Impl;
  const Impl& impl() const;  // throws StateError for a null handle
  std::shared_ptr<Impl> impl_;
};

class Event {
 public:
  /// Never recorded. `name` stands in traces and errors.
  explicit Event(std::string name = {});

  /// Marks this point of `stream`. An event may be recorded again; waits already issued keep the
  /// earlier mark.
  void record(const Stream& stream);
  bool is_recorded() const;
  /// True when the latest mark was reached (also when it carries an error). Throws StateError when
  /// never recorded.
  bool is_ready() const;
  /// Host waits for the latest mark; rethrows the error it carries. Throws StateError when never
  /// recorded.
  void synchronize() const;
  std::uint64_t id() const;  ///< unique in the process
  const std::string& name() const;

 private:
  friend class Stream;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// The stream that operations of this thread use on `device`. Until set, an inline stream named
/// "default", one a thread; on a GPU a queued one.
const Stream& current_stream(Device device);

/// Makes `stream` the thread's current one for its device until the end of the scope.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
  Device device_;
};

/// An operation that only takes time: the stream sleeps `milliseconds`. For tests of overlap, on
/// every device.
void stream_sleep(const Stream& stream, double milliseconds);

}  // namespace tessera
