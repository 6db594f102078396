#pragma once

/// A CUDA graph: work of one GPU that is recorded once and then launched with one call.
///
///     cuda::Queue& queue = current_stream(device).cuda_queue();
///     cuda::CudaGraph graph;
///     graph.capture(queue, [&] { ... });   // records the body's work; nothing runs
///     graph.replay(queue);                 // runs it
///
/// While a thread captures, all work that it issues to any queue of that GPU is recorded. Other
/// queues join when they are first used, after the work that the origin queue had then, and the
/// graph ends after all of them. Order between queues comes from marks, as always. The host waits
/// at once for a mark from before the capture. A mark recorded in the capture refers, for waits
/// after the capture, to the graph's latest replay; without a replay it is reached at once.
///
/// Memory: blocks that the body allocates belong to the graph and have the same addresses in each
/// replay. A block that the body returns is reused for its later blocks of the same queue that need
/// at least three quarters of its size. The memory is returned when the graph and all its blocks
/// are destroyed. A block from before the capture that is returned during it may be read by the
/// graph, so it is kept until then too. Memory that the body uses and does not own must keep its
/// address for as long as the graph is replayed.
///
/// Host values in the body (shapes, factors, keys of random numbers) keep their values from the
/// capture. If a kernel finds its input invalid, this is reported as in eager work, by the host
/// waits of the queues on which the graph was replayed (faults.h), by each queue separately.
///
/// The body must not do the following; each is a StateError with the operation's name: wait on the
/// host, also by reading values (item, to_vector); copy from host memory that is not page-locked;
/// run closures; create streams; use another GPU. Libraries prepare plans, heuristics, workspaces
/// and connections when a shape is first used: run the body once before the capture.
///
/// Destroy a graph before the process groups of the collectives in it: destroying a process group
/// ends the graph.
///
/// A graph may be used by one thread at a time. Throws OutOfMemory, DeviceError, and whatever the
/// body throws; then nothing is captured, and the graph object can be used again.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/tensor/cuda/capture.h"
#include "tessera/tensor/cuda/queue.h"

namespace tessera::cuda {

class CudaGraph {
 public:
  CudaGraph();
  /// Waits for the latest replay.
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Runs `body` once and records the calling thread's work, starting on `queue`. Throws StateError
  /// if there is a graph already, or if this thread is capturing.
  void capture(Queue& queue, const std::function<void()>& body);
  bool is_captured() const { return impl_ != nullptr; }
  /// Launches the graph on a queue of its GPU. Throws StateError without a capture, and the error
  /// that ended the process group of a collective in it.
  void replay(Queue& queue);
  /// Bytes of GPU memory that the graph holds for its own blocks.
  std::size_t memory_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws StateError for `where`, an operation that waits for a GPU on the host, while the calling
/// thread captures a graph.
void check_not_capturing(const char* where);

// The memory of one graph. Private to this folder.

/// Owned by the graph and by the queues that have blocks of it in use. On destruction all memory is
/// returned to the queues that it was allocated for, after the latest replay. Thread-safe.
class GraphMemory {
 public:
  explicit GraphMemory(std::shared_ptr<const Replays> replays);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  /// Allocates for the queue's captured work; null if there is no memory. Only during the capture.
  void* take(const std::shared_ptr<CapturedQueue>& queue, std::size_t bytes, DevicePool& pool);
  /// Makes the block available to later take() calls of the queue.
  void give_back(const CapturedQueue* queue, void* data) noexcept;
  /// Keeps a block that is not the graph's own but that the graph may read.
  void keep(std::shared_ptr<CapturedQueue> queue, void* data) noexcept;
  /// Bytes of the blocks that the graph allocated, in use or free.
  std::size_t bytes() const;

 private:
  struct Piece {
    std::shared_ptr<CapturedQueue> queue;
    std::size_t bytes = 0;  // 0: kept
  };

  const std::shared_ptr<const Replays> replays_;
  mutable std::mutex mutex_;
  std::map<void*, Piece> pieces_;
  std::map<const CapturedQueue*, std::multimap<std::size_t, void*>> free_;
  std::size_t bytes_ = 0;
};

}  // namespace tessera::cuda
