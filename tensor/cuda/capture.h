#pragma once

/// A CUDA graph capture in progress, and the queues that take part. Private to this folder.

#include <memory>
#include <vector>

#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/cuda/replays.h"

struct CUevent_st;  // of the CUDA runtime
struct CUgraph_st;
struct CUstream_st;

namespace tessera::cuda {

class DevicePool;
class GraphMemory;

/// The interface through which graphs use a queue.
class CapturedQueue {
 public:
  virtual ~CapturedQueue() = default;
  /// Its work runs again instead of being recorded.
  virtual void leave_capture() noexcept = 0;
  /// Returns memory that the queue allocated, in stream order and after the mark, which may be
  /// null.
  virtual void release(void* data, const Mark* behind) noexcept = 0;
};

class Capture {
 public:
  struct Member {
    std::shared_ptr<CapturedQueue> queue;
    CUstream_st* stream = nullptr;
    int device = 0;
  };

  /// The calling thread's capture; null: there is none.
  static Capture* current();

  /// Starts a capture on the calling thread; the first queue that joins is the graph's origin.
  Capture();
  /// Without a preceding end() the capture is discarded.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Queues call it when they are first used in a capture. The host waits for the stream's earlier
  /// work. Throws StateError for a queue of a GPU other than the origin's.
  void join(Member member, DevicePool& pool);
  /// Ends the capture; all members run their work again. The caller owns the graph.
  CUgraph_st* end();

  const std::shared_ptr<GraphMemory>& memory() const { return memory_; }
  const std::shared_ptr<Replays>& replays() const { return replays_; }
  const std::vector<Member>& members() const { return members_; }

 private:
  void leave() noexcept;

  const std::shared_ptr<Replays> replays_;
  const std::shared_ptr<GraphMemory> memory_;
  std::vector<Member> members_;  // the origin first
  CUevent_st* fork_ = nullptr;   // the origin's first event
  bool begun_ = false;
  bool made_ = false;  // end() has returned a graph
};

}  // namespace tessera::cuda
