#pragma once

/// Work of one GPU that is recorded once and then issued again with one call: a CUDA graph.
///
///     cuda::Queue& queue = current_stream(device).cuda_queue();
///     cuda::CudaGraph graph;
///     graph.capture(queue, [&] { ... });   // issues nothing: what the body asks for is recorded
///     graph.replay(queue);                 // runs it
///
/// While a thread captures, all that it asks of queues of that GPU is recorded, whatever queue it
/// is: other queues join where they are first used, behind what the body's queue had, and the graph
/// ends behind all of them. Order between them comes from marks, as always. A mark from before the
/// capture is waited for by the host, at once; a mark of the capture means, for waits after it, the
/// graph's latest replay, and nothing where there was none.
///
/// Memory: blocks that the body takes are the graph's, at the same addresses in each replay.
/// Returned in the body they serve its later blocks of the same queue, up to a quarter smaller ones
/// too. The memory goes back when the graph and all blocks of it have gone. A block from before the
/// capture that goes back during it may be read by the graph, so it too stays until then. Memory
/// that the body works on and does not own must stay where it is for as long as there are replays.
///
/// Numbers of the host in the body (shapes, factors, keys of random numbers) stay those of the
/// capture. What a kernel finds wrong with its input is reported as in eager work, by host waits of
/// the queue that the graph was replayed on (faults.h); where there are several, by each of them.
///
/// Not to be done in the body, each a StateError that names the operation: waiting on the host,
/// also by reading values (item, to_vector); copies from memory of the host that is not
/// page-locked; closures; new streams; work on another GPU. What libraries prepare at the first use
/// of a shape (plans, heuristics, workspaces, connections) should have been prepared: run the body
/// once before it is captured.
///
/// A graph goes before the process groups of collectives in it: one that has gone ends the graph.
///
/// A graph is for one thread at a time. Throws OutOfMemory, DeviceError, and what the body throws;
/// after that nothing is captured, and the graph can be used anew.

#include <cstddef>
#include <functional>
#include <memory>

#include "tessera/tensor/cuda/queue.h"

namespace tessera::cuda {

class CudaGraph {
 public:
  CudaGraph();
  /// Waits for the latest replay.
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Runs `body` once; the calling thread's work is recorded, beginning on `queue`. Throws
  /// StateError where there is a graph already, or a capture under way on this thread.
  void capture(Queue& queue, const std::function<void()>& body);
  bool is_captured() const { return impl_ != nullptr; }
  /// Issues the graph on a queue of its GPU. Throws StateError without a capture, and what has
  /// ended the process group of a collective in it.
  void replay(Queue& queue);
  /// Of the GPU, held by the graph for its own blocks.
  std::size_t memory_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws StateError for `where`, an operation of a GPU that the host waits for, while the calling
/// thread captures a graph.
void check_not_capturing(const char* where);

}  // namespace tessera::cuda
