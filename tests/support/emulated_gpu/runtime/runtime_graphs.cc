// Capture of streams as graphs, and their launches.

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_capture.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_errors.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_streams.h"

/// CUDA's names: a graph, and one that can be launched.
struct CUgraph_st {
  std::shared_ptr<const tessera::emulated::GraphBody> body;
};
struct CUgraphExec_st {
  std::shared_ptr<const tessera::emulated::GraphBody> body;
  // Launches of one executable graph follow each other.
  std::shared_ptr<std::mutex> running = std::make_shared<std::mutex>();
};

namespace tessera::emulated {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

// Those under way, in the order of their begin; guarded by capture_mutex().
std::vector<std::shared_ptr<Capture>>& captures() {
  static auto* all = new std::vector<std::shared_ptr<Capture>>;
  return *all;
}

bool concerns_this_thread(const Capture& capture) {
  if (capture.mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return capture.mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
}

bool all_joined(const Capture& capture) {
  const Order& order = capture.streams.front()->capturing.order;
  for (std::size_t i = 1; i < capture.streams.size(); ++i) {
    const Stream& stream = *capture.streams[i];
    const std::uint64_t operations = stream.capturing.operations;
    if (operations > 0 && !order.has(stream.id, operations)) return false;
  }
  return true;
}

// Its streams run their work again. Returns the captured work, for the caller to destroy without
// the lock: events keep the capture, and must not keep the work.
std::shared_ptr<GraphBody> end(const std::shared_ptr<Capture>& capture) {
  capture->origin = nullptr;
  for (const auto& stream : std::exchange(capture->streams, {})) stream->capturing = {};
  std::erase(captures(), capture);
  --captures_under_way();
  return std::exchange(capture->body, nullptr);
}

cudaError_t end_capture(Stream& stream, cudaGraph_t* graph) {
  std::shared_ptr<const GraphBody> body;
  const std::lock_guard lock(capture_mutex());
  const std::shared_ptr<Capture> capture = stream.capturing.capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    capture->invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  cudaError_t error = cudaSuccess;
  if (capture->invalid) error = cudaErrorStreamCaptureInvalidated;
  if (error == cudaSuccess && !all_joined(*capture)) error = cudaErrorStreamCaptureUnjoined;
  body = end(capture);
  if (error == cudaSuccess) *graph = new CUgraph_st{body};
  return error;
}

cudaError_t capture_status(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (status == nullptr) return cudaErrorInvalidValue;
  const Handle resolved = resolve(handle);
  if (!resolved.valid) return cudaErrorInvalidResourceHandle;
  *status = cudaStreamCaptureStatusNone;
  if (resolved.stream == nullptr) return cudaSuccess;
  const std::lock_guard lock(capture_mutex());
  const std::shared_ptr<Capture>& capture = resolved.stream->capturing.capture;
  if (capture == nullptr) return cudaSuccess;
  *status = capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

}  // namespace

std::mutex& capture_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::atomic<int>& captures_under_way() {
  static constinit std::atomic<int> count{0};
  return count;
}

CaptureAnswer capture_operation(Stream& stream, std::function<void()> operation) {
  const std::lock_guard lock(capture_mutex());
  const std::shared_ptr<Capture>& capture = stream.capturing.capture;
  if (capture == nullptr) return {};
  if (capture->invalid) return {.captured = true, .error = cudaErrorStreamCaptureInvalidated};
  capture->body->operations.push_back(std::move(operation));
  ++stream.capturing.operations;
  return {.captured = true};
}

bool capture_memory(Stream& stream, std::shared_ptr<void> memory) {
  const std::lock_guard lock(capture_mutex());
  if (stream.capturing.capture == nullptr) return false;
  stream.capturing.capture->body->memory.push_back(std::move(memory));
  return true;
}

bool is_capturing(Stream& stream) {
  if (captures_under_way() == 0) return false;
  const std::lock_guard lock(capture_mutex());
  return stream.capturing.capture != nullptr;
}

void abandon_capture(Stream& stream) {
  if (captures_under_way() == 0) return;
  std::shared_ptr<const GraphBody> body;
  const std::lock_guard lock(capture_mutex());
  const std::shared_ptr<Capture> capture = stream.capturing.capture;
  if (capture == nullptr) return;
  capture->invalid = true;
  if (capture->origin == &stream) body = end(capture);
}

cudaError_t refuse_while_capturing(const std::vector<std::shared_ptr<Stream>>& streams,
                                   cudaError_t error) {
  if (captures_under_way() == 0) return cudaSuccess;
  const std::lock_guard lock(capture_mutex());
  cudaError_t answer = cudaSuccess;
  for (const auto& stream : streams) {
    if (stream->capturing.capture == nullptr) continue;
    stream->capturing.capture->invalid = true;
    answer = error;
  }
  return answer;
}

cudaError_t refuse_unsafe_call() {
  if (captures_under_way() == 0 || thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const std::lock_guard lock(capture_mutex());
  cudaError_t answer = cudaSuccess;
  for (const auto& capture : captures()) {
    if (!concerns_this_thread(*capture)) continue;
    capture->invalid = true;
    answer = cudaErrorStreamCaptureUnsupported;
  }
  return answer;
}

}  // namespace tessera::emulated

using namespace tessera::emulated;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call([&] {
    if (mode == nullptr || *mode < cudaStreamCaptureModeGlobal ||
        *mode > cudaStreamCaptureModeRelaxed)
      return cudaErrorInvalidValue;
    std::swap(thread_mode, *mode);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call([&] {
    const Handle resolved = resolve(handle);
    if (!resolved.valid) return cudaErrorInvalidResourceHandle;
    if (resolved.stream == nullptr) return cudaErrorStreamCaptureUnsupported;
    const std::lock_guard lock(capture_mutex());
    if (resolved.stream->capturing.capture != nullptr) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->origin = resolved.stream.get();
    capture->thread = std::this_thread::get_id();
    capture->streams = {resolved.stream};
    resolved.stream->capturing = {.capture = capture};
    captures().push_back(std::move(capture));
    ++captures_under_way();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call([&] {
    if (graph == nullptr) return cudaErrorInvalidValue;
    *graph = nullptr;
    const Handle resolved = resolve(handle);
    if (!resolved.valid) return cudaErrorInvalidResourceHandle;
    if (resolved.stream == nullptr) return cudaErrorIllegalState;
    return end_capture(*resolved.stream, graph);
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call([&] { return capture_status(handle, status); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  return call([&] {
    if (out == nullptr || graph == nullptr) return cudaErrorInvalidValue;
    *out = new CUgraphExec_st{graph->body};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return call([&] {
    if (exec == nullptr) return cudaErrorInvalidValue;
    return submit(resolve(handle), [body = exec->body, running = exec->running] {
      const std::lock_guard lock(*running);
      for (const auto& operation : body->operations) operation();
    });
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call([&] {
    delete exec;
    return exec == nullptr ? cudaErrorInvalidValue : cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&] {
    delete graph;
    return graph == nullptr ? cudaErrorInvalidValue : cudaSuccess;
  });
}

}  // extern "C"
