#include "tessera/tensor/cuda/queue_failure.h"

#include "tessera/tensor/rank_context.h"

namespace tessera::cuda {

void QueueFailure::add_witness(std::function<bool()> witness) {
  const std::lock_guard lock(mutex_);
  witnesses_.push_back(std::move(witness));
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

void QueueFailure::note(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (error_ == nullptr) error_ = std::move(error);
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

void QueueFailure::ask_witnesses() {
  std::vector<std::function<bool()>> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(witnesses_);
  }
  std::erase_if(all, [](const auto& witness) { return !witness(); });
  const std::lock_guard lock(mutex_);
  witnesses_.insert(witnesses_.end(), all.begin(), all.end());
}

}  // namespace tessera::cuda
