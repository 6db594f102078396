#include "tessera/tensor/rank_context.h"

#include <omp.h>

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

const std::shared_ptr<RankContext>& default_context() {
  // Never destroyed: tensors in static variables count themselves off after main() has ended.
  static const auto* context =
      new std::shared_ptr<RankContext>(std::make_shared<RankContext>(-1, 1, omp_get_max_threads()));
  return *context;
}

// Points into the innermost RankScope; trivially destructible, so it is usable at any time of a
// thread's end.
thread_local const std::shared_ptr<RankContext>* t_context = nullptr;
thread_local bool t_stream_worker = false;

}  // namespace

RankContext::RankContext(int rank, int world_size, int threads)
    : rank_(rank),
      world_size_(world_size),
      threads_(std::max(1, threads)),
      memory_(std::make_shared<MemoryCounters>()) {}

void RankContext::set_failure_handler(std::function<void(std::exception_ptr)> handler) {
  const std::lock_guard lock(failure_mutex_);
  failure_handler_ = std::move(handler);
  failed_ = false;
}

void RankContext::report_failure(std::exception_ptr error) noexcept {
  try {
    const std::lock_guard lock(failure_mutex_);
    if (failed_ || !failure_handler_) return;
    failed_ = true;
    const auto handler = failure_handler_;
    handler(std::move(error));
  } catch (...) {
    // A handler that fails has nobody left to tell; the stream still carries the first error.
  }
}

const std::shared_ptr<RankContext>& current_rank_context() {
  return t_context != nullptr ? *t_context : default_context();
}

RankScope::RankScope(std::shared_ptr<RankContext> context)
    : context_(std::move(context)), previous_(t_context), previous_threads_(omp_get_max_threads()) {
  t_context = &context_;
  omp_set_num_threads(context_->threads());
}

RankScope::~RankScope() {
  t_context = previous_;
  omp_set_num_threads(previous_threads_);
}

Trace* active_trace() { return t_stream_worker ? nullptr : current_rank_context()->trace(); }

namespace detail {

void mark_stream_worker() { t_stream_worker = true; }
bool on_stream_worker() { return t_stream_worker; }

}  // namespace detail
}  // namespace tessera
