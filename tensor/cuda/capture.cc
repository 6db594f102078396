#include "tessera/tensor/cuda/capture.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/device_pool.h"
#include "tessera/tensor/cuda/graph.h"
#include "tessera/tensor/cuda/recorded_mark.h"
#include "tessera/tensor/thread_state.h"

namespace tessera::cuda {
namespace {

constexpr const char* kWhere = "cuda_graph.capture";

}  // namespace

bool is_capturing(CUstream_st* stream, const char* where) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), where, "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

RelaxedCapture::RelaxedCapture() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  mode_ = static_cast<int>(mode);
}

RelaxedCapture::~RelaxedCapture() {
  auto mode = static_cast<cudaStreamCaptureMode>(mode_);
  cudaThreadExchangeStreamCaptureMode(&mode);
}

void check_not_capturing(const char* where) {
  TESSERA_CHECK_AS(StateError, Capture::current() == nullptr, where,
                   "the host cannot wait for the GPU while a CUDA graph is captured, for nothing "
                   "runs; do it after a replay");
}

Capture* Capture::current() { return detail::thread_state().capture; }

Capture::Capture()
    : replays_(std::make_shared<Replays>()), memory_(std::make_shared<GraphMemory>(replays_)) {
  TESSERA_CHECK_AS(StateError, current() == nullptr, kWhere,
                   "this thread captures a graph already; end that first");
  detail::thread_state().capture = this;
}

Capture::~Capture() {
  if (begun_) {
    const DeviceGuard guard(members_.front().device);
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(members_.front().stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // the error that broke the capture was thrown where it happened
  }
  leave();
  if (!made_) replays_->end();
}

// The origin's work begins with an event through which other queues join, so the graph has no more
// order than the body requires.
void Capture::join(Member member, DevicePool& pool) {
  const DeviceGuard guard(member.device);
  const bool is_origin = members_.empty();
  TESSERA_CHECK_AS(StateError, is_origin || member.device == members_.front().device, kWhere,
                   "work on cuda:{} cannot be part of a graph of cuda:{}; capture it apart",
                   member.device, members_.front().device);
  pool.settle(member.stream);
  const auto lock = pool.hold_off_trims();
  if (is_origin) {
    check_cuda(cudaStreamBeginCapture(member.stream, cudaStreamCaptureModeThreadLocal), kWhere,
               "cudaStreamBeginCapture");
    members_.push_back(std::move(member));
    begun_ = true;
    EventStore& events = EventStore::of(members_.front().device);
    fork_ = events.take();
    check_cuda(cudaEventRecord(fork_, members_.front().stream), kWhere, "cudaEventRecord");
    return;
  }
  check_cuda(cudaStreamWaitEvent(member.stream, fork_, 0), kWhere, "cudaStreamWaitEvent");
  members_.push_back(std::move(member));
}

CUgraph_st* Capture::end() {
  const Member& origin = members_.front();
  const DeviceGuard guard(origin.device);
  EventStore& events = EventStore::of(origin.device);
  for (const Member& member : members_) {
    if (member.stream == origin.stream) continue;
    cudaEvent_t event = events.take();
    cudaError_t error = cudaEventRecord(event, member.stream);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(origin.stream, event, 0);
    events.give_back(event);
    check_cuda(error, kWhere, "joining a stream");
  }
  begun_ = false;
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(origin.stream, &graph);
  leave();
  check_cuda(error, kWhere, "cudaStreamEndCapture");
  made_ = true;
  return graph;
}

void Capture::leave() noexcept {
  if (current() != this) return;
  detail::thread_state().capture = nullptr;
  for (const Member& member : members_) member.queue->leave_capture();
  if (fork_ != nullptr) EventStore::of(members_.front().device).give_back(fork_);
  fork_ = nullptr;
}

}  // namespace tessera::cuda
