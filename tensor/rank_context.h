#pragma once

/// The state of one rank that code finds through the running thread: its number, byte counters,
/// trace, thread budget and failure handler. Ranks may be threads of one process, so none of this
/// can be global.
///
/// Every thread has a context: the process's default one (rank -1, "outside a world") until a
/// RankScope installs another. The worker of a queued stream runs each closure under the context of
/// the thread that issued it.

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/thread_state.h"

namespace tessera {

class ExecutionTrace;

class RankContext {
 public:
  RankContext(int rank, int world_size, int threads);

  int rank() const { return rank_; }  ///< -1 outside a world
  int world_size() const { return world_size_; }
  /// The number of threads that one CPU kernel may use; at least 1. Results do not depend on it.
  int threads() const { return threads_; }
  /// They outlive the context as long as storages are counted in them.
  MemoryCounters& memory() { return *memory_; }

  /// The trace being written, or null. Costs one branch when tracing is off.
  ExecutionTrace* trace() const { return trace_.load(std::memory_order_relaxed); }
  /// Starts tracing, or stops it if `trace` is null; `trace` must outlive the recording. Call it on
  /// the rank's own thread. TraceScope (trace.h) does this.
  void set_trace(ExecutionTrace* trace) { trace_.store(trace, std::memory_order_relaxed); }

  /// Called once, by the first failure of a queued stream, on the stream's worker thread. A world
  /// aborts its process groups in the handler, so that no peer waits for a rank that cannot
  /// continue. Setting a handler (or null) waits until a running call of the previous one ends; the
  /// previous handler never runs afterwards. The new handler is called for the next failure.
  void set_failure_handler(std::function<void(std::exception_ptr)> handler);
  void report_failure(std::exception_ptr error) noexcept;

 private:
  int rank_;
  int world_size_;
  int threads_;
  std::shared_ptr<MemoryCounters> memory_;
  std::atomic<ExecutionTrace*> trace_{nullptr};
  std::recursive_mutex failure_mutex_;  // a handler may replace itself
  std::function<void(std::exception_ptr)> failure_handler_;
  bool failed_ = false;
};

namespace detail {
const std::shared_ptr<RankContext>& default_rank_context();
}  // namespace detail

/// The calling thread's context; never null.
inline const std::shared_ptr<RankContext>& current_rank_context() {
  const std::shared_ptr<RankContext>* context = detail::thread_state().rank_context;
  return context != nullptr ? *context : detail::default_rank_context();
}

/// Installs a context on this thread until the end of the scope.
class RankScope {
 public:
  explicit RankScope(std::shared_ptr<RankContext> context);
  ~RankScope();
  RankScope(const RankScope&) = delete;
  RankScope& operator=(const RankScope&) = delete;

 private:
  std::shared_ptr<RankContext> context_;
  const std::shared_ptr<RankContext>* previous_;
};

/// The trace of the calling thread's context, or null. Always null on a stream's worker: records
/// are written by the rank's own thread, when work is issued.
inline ExecutionTrace* active_trace() {
  return detail::thread_state().is_stream_worker ? nullptr : current_rank_context()->trace();
}

}  // namespace tessera
