#pragma once

/// A graph's capture while it is under way, and the queues that take part. Private to this folder.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/tensor/cuda/queue.h"

struct CUevent_st;  // of the CUDA runtime
struct CUgraph_st;
struct CUstream_st;

namespace tessera::cuda {

class DevicePool;
class GraphMemory;

/// The replays of one graph. Thread-safe.
class Replays {
 public:
  void set_latest(std::shared_ptr<const Mark> mark) {
    const std::lock_guard lock(mutex_);
    latest_ = std::move(mark);
  }
  /// Behind the latest one; null: there was none.
  std::shared_ptr<const Mark> latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Mark> latest_;
};

/// What graphs know of a queue.
class CapturedQueue {
 public:
  virtual ~CapturedQueue() = default;
  /// Its work runs again.
  virtual void leave_capture() noexcept = 0;
  /// Memory that it took goes back, in stream order and behind the mark, which may be null.
  virtual void release(void* data, const Mark* behind) noexcept = 0;
};

/// Until the end of the scope, the calling thread may do what would break a capture of its own if
/// it meant the captured work, and does not: asking for eager work, taking memory.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_;
};

class Capture {
 public:
  struct Member {
    std::shared_ptr<CapturedQueue> queue;
    CUstream_st* stream = nullptr;
    int device = 0;
  };

  /// The calling thread's; null: its work runs.
  static Capture* current();

  /// The thread captures from here on; the first queue that joins is the graph's origin.
  Capture();
  /// Without end(): nothing comes of it.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Queues call it when they are first used. The host waits for what the stream holds. Throws
  /// StateError for a queue of another GPU than the origin's.
  void join(Member member, DevicePool& pool);
  /// All members run their work again. The caller owns the graph.
  CUgraph_st* end();

  const std::shared_ptr<GraphMemory>& memory() const { return memory_; }
  const std::shared_ptr<Replays>& replays() const { return replays_; }
  const std::vector<Member>& members() const { return members_; }

 private:
  void leave() noexcept;

  const std::shared_ptr<Replays> replays_;
  const std::shared_ptr<GraphMemory> memory_;
  std::vector<Member> members_;  // the origin first
  CUevent_st* fork_ = nullptr;   // the origin's begin
  bool begun_ = false;
};

}  // namespace tessera::cuda
