#pragma once

/// What is known of the replays of one CUDA graph: by its marks, by its memory, and by those who
/// watch what runs in it. Thread-safe.
///
/// It owns what is launched: NCCL ends a communicator only after the graphs that captured it, so
/// who ends communicators must be able to end graphs, whoever holds them.

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

/// Around the graph, on the queue that it was issued on.
struct Replay {
  std::shared_ptr<const Mark> begun{};
  std::shared_ptr<const Mark> done{};  ///< null: there was none
};

class Replays {
 public:
  /// Throws OutOfMemory.
  Replays();

  Replay latest() const;
  /// The first one that is not done; the latest where all are. Throws DeviceError.
  Replay oldest();
  /// The graph is gone: there are no more.
  bool are_over() const;
  /// As Queue::add_witness, of every queue that the graph is replayed on.
  void add_witness(std::function<bool()> witness);
  /// As Queue::fail, of every queue that it was replayed on.
  void fail(std::exception_ptr error) noexcept;
  /// What the graph works with has ended: each attempt to replay it throws the first such error.
  /// Answers what is launched, for the caller to let go: it then ends, at once or after a replay
  /// that is under way. Null: it has ended before.
  std::shared_ptr<void> refuse(std::exception_ptr error) noexcept;

  // For this folder.
  /// What kernels of the graph report to.
  FaultSlot& fault_slot() const;
  /// What the failure of the graph's work is noted in, and passed on from to its queues.
  const std::shared_ptr<QueueFailure>& failure() const { return failure_; }
  void own(CUgraphExec_st* exec);
  /// For a launch, which may take long where the GPU is behind, and is not to hold up who refuses.
  /// Throws what has ended the graph.
  std::shared_ptr<CUgraphExec_st> exec() const;
  /// It was launched. Throws what has ended the graph meanwhile, which host waits throw then too.
  void add(Replay replay);
  /// The graph is gone.
  void end() noexcept;

 private:
  void forget_done();  // lock held

  const std::shared_ptr<QueueFailure> failure_;
  mutable std::mutex mutex_;
  std::shared_ptr<CUgraphExec_st> exec_;  // null: not yet, or ended
  Replay latest_;
  std::deque<Replay> under_way_;  // in the order of their launches; the last ones may be done
  std::exception_ptr refusal_;
  bool over_ = false;
};

}  // namespace tessera::cuda
