#include "tessera/tensor/cuda/graph.h"

#include <exception>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/capture.h"
#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/device_pool.h"
#include "tessera/tensor/cuda/queue_failure.h"

namespace tessera::cuda {
namespace {

constexpr const char* kCapture = "cuda_graph.capture";
constexpr const char* kReplay = "cuda_graph.replay";

}  // namespace

// The queues live as long as the graph, because its memory was allocated for them. `replays` owns
// the executable graph, so that other code can destroy it earlier.
struct CudaGraph::Impl {
  int device = 0;
  std::vector<Capture::Member> members;
  std::shared_ptr<Replays> replays;
  std::shared_ptr<GraphMemory> memory;

  Impl(std::shared_ptr<Replays> its_replays, std::shared_ptr<GraphMemory> its_memory)
      : replays(std::move(its_replays)), memory(std::move(its_memory)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    const RelaxedCapture relaxed;
    try {
      if (const Replay latest = replays->latest(); latest.done != nullptr) latest.done->await();
      replays->failure()->look_for_fault();  // the last chance to pass a fault on
    } catch (const std::exception&) {
      // The GPU accepts no more work; the next call reports it.
    }
    replays->end();
  }
};

CudaGraph::CudaGraph() = default;
CudaGraph::~CudaGraph() = default;

void CudaGraph::capture(Queue& queue, const std::function<void()>& body) {
  TESSERA_CHECK_AS(StateError, impl_ == nullptr, kCapture,
                   "there is a graph already; capture into a new one");
  Capture capture;
  queue.handle();  // joins as the first queue
  body();
  auto impl = std::make_unique<Impl>(capture.replays(), capture.memory());
  impl->members = capture.members();
  impl->device = impl->members.front().device;
  cudaGraph_t graph = capture.end();
  const DeviceGuard guard(impl->device);
  cudaGraphExec_t exec = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(error, kCapture, "cudaGraphInstantiate");
  impl->replays->own(exec);
  impl_ = std::move(impl);
}

void CudaGraph::replay(Queue& queue) {
  TESSERA_CHECK_AS(StateError, impl_ != nullptr, kReplay, "there is no graph; capture one first");
  check_not_capturing(kReplay);
  const auto exec = impl_->replays->exec();
  const DeviceGuard guard(impl_->device);
  queue.follow(*impl_->replays);
  auto begun = queue.record();
  check_cuda(cudaGraphLaunch(exec.get(), queue.handle()), kReplay, "cudaGraphLaunch");
  impl_->replays->add({.begun = std::move(begun), .done = queue.record()});
}

std::size_t CudaGraph::memory_bytes() const {
  return impl_ == nullptr ? 0 : impl_->memory->bytes();
}

GraphMemory::GraphMemory(std::shared_ptr<const Replays> replays) : replays_(std::move(replays)) {}

GraphMemory::~GraphMemory() {
  const std::shared_ptr<const Mark> latest = replays_->latest().done;
  for (const auto& [data, piece] : pieces_) piece.queue->release(data, latest.get());
}

void* GraphMemory::take(const std::shared_ptr<CapturedQueue>& queue, std::size_t bytes,
                        DevicePool& pool) {
  const std::lock_guard lock(mutex_);
  auto& free = free_[queue.get()];
  const auto fitting = free.lower_bound(bytes);
  if (fitting != free.end() && fitting->first - bytes <= fitting->first / 4) {
    void* data = fitting->second;
    free.erase(fitting);
    return data;
  }
  void* data = pool.take_now(bytes);
  if (data == nullptr) return nullptr;
  pieces_[data] = {.queue = queue, .bytes = bytes};
  bytes_ += bytes;
  return data;
}

void GraphMemory::give_back(const CapturedQueue* queue, void* data) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    free_[queue].emplace(pieces_.at(data).bytes, data);
  } catch (...) {
    // No host memory for a record: the piece is returned only when the graph ends.
  }
}

void GraphMemory::keep(std::shared_ptr<CapturedQueue> queue, void* data) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    pieces_[data] = {.queue = std::move(queue)};
  } catch (...) {
    // No host memory for a record: the block is leaked rather than reused too early.
  }
}

std::size_t GraphMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace tessera::cuda
