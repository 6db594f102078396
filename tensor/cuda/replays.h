#pragma once

/// The state of one CUDA graph's replays, shared by its marks, its memory and the code that watches
/// the work in it. Thread-safe.
///
/// It owns the executable graph. NCCL can destroy a communicator only after the graphs that
/// captured it, so the code that destroys communicators must be able to destroy graphs, wherever
/// they are held.

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

struct CUgraphExec_st;  // of the CUDA runtime

namespace tessera::cuda {

class Mark;
class QueueFailure;
struct FaultSlot;

/// One replay: marks before and after the graph, on the queue that it was launched on.
struct Replay {
  std::shared_ptr<const Mark> begun{};
  std::shared_ptr<const Mark> done{};  ///< null: there was no replay
};

class Replays {
 public:
  /// Throws OutOfMemory.
  Replays();

  Replay latest() const;
  /// The oldest replay that is not done; the latest one if all are. Throws DeviceError.
  Replay oldest();
  /// True when the graph is destroyed: there will be no more replays.
  bool are_over() const;
  /// Adds a host-wait callback, as Queue::add_witness, to every queue that the graph is replayed
  /// on.
  void add_witness(std::function<bool()> witness);
  /// As Queue::fail, for every queue that the graph was replayed on.
  void fail(std::exception_ptr error) noexcept;
  /// Something that the graph uses was destroyed: each attempt to replay it throws the first such
  /// error. Returns the executable graph for the caller to release; it is then destroyed, at once
  /// or after the running replay. Null: it was destroyed before.
  std::shared_ptr<void> refuse(std::exception_ptr error) noexcept;

  // For this folder.
  /// The slot in which kernels of the graph report faults.
  FaultSlot& fault_slot() const;
  /// Holds failures of the graph's work, and passes them on to the queues that replay it.
  const std::shared_ptr<QueueFailure>& failure() const { return failure_; }
  void own(CUgraphExec_st* exec);
  /// For a launch. A launch may take long if the GPU is behind, and must not block refuse(). Throws
  /// the error that ended the graph.
  std::shared_ptr<CUgraphExec_st> exec() const;
  /// Notes a launch. Throws the error if the graph was ended meanwhile; host waits then throw it
  /// too.
  void add(Replay replay);
  /// The graph is destroyed.
  void end() noexcept;

 private:
  void forget_done();  // the caller holds the lock

  const std::shared_ptr<QueueFailure> failure_;
  mutable std::mutex mutex_;
  std::shared_ptr<CUgraphExec_st> exec_;  // null: not yet made, or destroyed
  Replay latest_;
  std::deque<Replay> under_way_;  // in the order of their launches; the last ones may be done
  std::exception_ptr refusal_;
  bool over_ = false;
};

}  // namespace tessera::cuda
