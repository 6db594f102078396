#include "tessera/tensor/cuda/queue_failure.h"

#include <algorithm>

#include "tessera/tensor/rank_context.h"

namespace tessera::cuda {

void QueueFailure::add_witness(std::function<bool()> witness) {
  auto kept = std::make_shared<const std::function<bool()>>(std::move(witness));
  const std::lock_guard lock(mutex_);
  witnesses_.push_back(std::move(kept));
}

void QueueFailure::look_for_fault() {
  ask_witnesses();
  const std::exception_ptr error = take_fault(fault_slot());
  if (error == nullptr) return;
  note(error);
  current_rank_context()->report_failure(error);
}

bool QueueFailure::any() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

// A queue has no listeners, so locks are always taken in the order graph, queue.
void QueueFailure::note(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& each : listeners_) {
    if (const auto listener = each.lock()) listener->note(error);
  }
  if (error_ == nullptr) error_ = std::move(error);
}

bool QueueFailure::add_listener(const std::shared_ptr<QueueFailure>& listener) {
  const std::lock_guard lock(mutex_);
  std::erase_if(listeners_, [](const auto& each) { return each.expired(); });
  for (const auto& each : listeners_) {
    if (each.lock() == listener) return false;
  }
  listeners_.push_back(listener);
  return true;
}

void QueueFailure::rethrow() const {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  if (error != nullptr) std::rethrow_exception(std::move(error));
}

void QueueFailure::rethrow_once() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (error != nullptr) std::rethrow_exception(std::move(error));
}

// Several threads may call at once, each for a wait of its own; a callback may throw.
void QueueFailure::ask_witnesses() {
  decltype(witnesses_) all;
  {
    const std::lock_guard lock(mutex_);
    all = witnesses_;
  }
  std::erase_if(all, [](const auto& witness) { return (*witness)(); });
  if (all.empty()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(witnesses_, [&all](const auto& each) {
    return std::find(all.begin(), all.end(), each) != all.end();
  });
}

void follow(const std::shared_ptr<QueueFailure>& queue,
            const std::shared_ptr<QueueFailure>& graph) {
  if (!graph->add_listener(queue)) return;
  queue->add_witness([weak = std::weak_ptr(graph)] {
    const auto followed = weak.lock();
    if (followed != nullptr) followed->look_for_fault();
    return followed != nullptr;
  });
}

}  // namespace tessera::cuda
