#include "tessera/tensor/rank_context.h"

#include <algorithm>
#include <utility>

#include "tessera/tensor/cores.h"

namespace tessera {
namespace detail {

const std::shared_ptr<RankContext>& default_rank_context() {
  // Never destroyed: tensors in static variables subtract their bytes after main() has ended.
  static const auto* context =
      new std::shared_ptr<RankContext>(std::make_shared<RankContext>(-1, 1, default_threads()));
  return *context;
}

}  // namespace detail

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
    // The handler itself failed. Ignored: the stream still carries the first error.
  }
}

RankScope::RankScope(std::shared_ptr<RankContext> context)
    : context_(std::move(context)), previous_(detail::thread_state().rank_context) {
  detail::thread_state().rank_context = &context_;
}

RankScope::~RankScope() { detail::thread_state().rank_context = previous_; }

}  // namespace tessera
