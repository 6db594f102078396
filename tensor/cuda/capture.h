#pragma once

/// A graph's capture while it is under way, and the queues that take part. Private to this folder.

#include <memory>
#include <vector>

#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/cuda/replays.h"
#include "tessera/tensor/cuda/stream_capture.h"

struct CUevent_st;  // of the CUDA runtime
struct CUgraph_st;
struct CUstream_st;

namespace tessera::cuda {

class DevicePool;
class GraphMemory;

/// What graphs know of a queue.
class CapturedQueue {
 public:
  virtual ~CapturedQueue() = default;
  /// Its work runs again.
  virtual void leave_capture() noexcept = 0;
  /// Memory that it took goes back, in stream order and behind the mark, which may be null.
  virtual void release(void* data, const Mark* behind) noexcept = 0;
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
  bool made_ = false;  // end() has given a graph out
};

}  // namespace tessera::cuda
