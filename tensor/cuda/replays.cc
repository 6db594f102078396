#include "tessera/tensor/cuda/replays.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/cuda/queue_failure.h"

namespace tessera::cuda {
namespace {

// If a replay is running, the driver frees the graph at its end.
void destroy(CUgraphExec_st* exec) {
  const RelaxedCapture relaxed;
  if (cudaGraphExecDestroy(exec) != cudaSuccess) cudaGetLastError();
}

}  // namespace

Replays::Replays() : failure_(std::make_shared<QueueFailure>()) {}

Replay Replays::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

Replay Replays::oldest() {
  const std::lock_guard lock(mutex_);
  forget_done();
  return under_way_.empty() ? latest_ : under_way_.front();
}

void Replays::forget_done() {
  while (!under_way_.empty() && under_way_.front().done->reached()) under_way_.pop_front();
}

bool Replays::are_over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

void Replays::add_witness(std::function<bool()> witness) {
  failure_->add_witness(std::move(witness));
}

void Replays::fail(std::exception_ptr error) noexcept { failure_->note(std::move(error)); }

std::shared_ptr<void> Replays::refuse(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (refusal_ == nullptr) refusal_ = std::move(error);
  return std::exchange(exec_, nullptr);
}

void Replays::own(CUgraphExec_st* exec) {
  std::shared_ptr<CUgraphExec_st> owned(exec, &destroy);
  const std::lock_guard lock(mutex_);
  if (refusal_ == nullptr) exec_.swap(owned);
}

std::shared_ptr<CUgraphExec_st> Replays::exec() const {
  const std::lock_guard lock(mutex_);
  if (refusal_ != nullptr) std::rethrow_exception(refusal_);
  return exec_;
}

FaultSlot& Replays::fault_slot() const { return failure_->fault_slot(); }

void Replays::add(Replay replay) {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    latest_ = std::move(replay);
    under_way_.push_back(latest_);
    forget_done();
    error = refusal_;
  }
  if (error == nullptr) return;
  failure_->note(error);
  std::rethrow_exception(std::move(error));
}

void Replays::end() noexcept {
  std::shared_ptr<CUgraphExec_st> last;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  over_ = true;
  last.swap(exec_);
}

}  // namespace tessera::cuda
