#include "tessera/tensor/cuda/recorded_mark.h"

#include <cuda_runtime_api.h>

#include <map>
#include <optional>
#include <utility>

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/graph.h"

namespace tessera::cuda {

EventStore& EventStore::of(int device) {
  static auto* mutex = new std::mutex;
  static auto* stores = new std::map<int, EventStore>;
  const std::lock_guard lock(*mutex);
  return (*stores)[device];
}

CUevent_st* EventStore::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!kept_.empty()) {
      cudaEvent_t event = kept_.back();
      kept_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event.record",
             "cudaEventCreate");
  return event;
}

void EventStore::give_back(CUevent_st* event) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    kept_.push_back(event);
  } catch (...) {
    cudaEventDestroy(event);
  }
}

RecordedMark::RecordedMark(EventStore& events, CUstream_st* stream,
                           std::shared_ptr<QueueFailure> failure,
                           std::shared_ptr<const Replays> replays)
    : events_(events),
      event_(events.take()),
      failure_(std::move(failure)),
      replays_(std::move(replays)) {
  const cudaError_t error = cudaEventRecord(event_, stream);
  if (error != cudaSuccess) events_.give_back(event_);
  check_cuda(error, "event.record", "cudaEventRecord");
}

bool RecordedMark::reached() const {
  if (is_of(Capture::current())) check_not_capturing("event.is_ready");
  if (replays_ != nullptr) {
    const auto latest = replays_->latest().done;
    return latest == nullptr || latest->reached();
  }
  std::optional<RelaxedCapture> relaxed;
  if (Capture::current() != nullptr) relaxed.emplace();
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // clears the error, which the next launch would report
    return false;
  }
  check_cuda(error, "event.is_ready", "cudaEventQuery");
  return true;
}

void RecordedMark::await() const {
  if (is_of(Capture::current())) check_not_capturing("event.synchronize");
  if (replays_ != nullptr) {
    if (const auto latest = replays_->latest().done) latest->await();
    return;
  }
  std::optional<RelaxedCapture> relaxed;
  if (Capture::current() != nullptr) relaxed.emplace();
  check_cuda(cudaEventSynchronize(event_), "event.synchronize", "cudaEventSynchronize");
}

void RecordedMark::synchronize() const {
  check_not_capturing("event.synchronize");
  if (replays_ != nullptr) {
    if (const auto latest = replays_->latest().done) latest->synchronize();
    return;
  }
  await();
  failure_->look_for_fault();
  failure_->rethrow();
}

void RecordedMark::hold_up(CUstream_st* stream) const {
  const Capture* capture = Capture::current();
  if (capture != nullptr && !is_of(capture)) return await();  // a graph delays no work outside it
  if (capture == nullptr && replays_ != nullptr) {
    if (const auto latest = replays_->latest().done)
      static_cast<const RecordedMark&>(*latest).hold_up(stream);
    return;
  }
  check_cuda(cudaStreamWaitEvent(stream, event_, 0), "stream.wait", "cudaStreamWaitEvent");
}

}  // namespace tessera::cuda
