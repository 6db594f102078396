#include "tessera/tensor/cuda/graph.h"

#include <cuda_runtime_api.h>

#include <exception>
#include <utility>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/capture.h"
#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/graph_memory.h"

namespace tessera::cuda {
namespace {

constexpr const char* kCapture = "cuda_graph.capture";
constexpr const char* kReplay = "cuda_graph.replay";

}  // namespace

// The queues live as long as the graph: its kernels report faults to their slots.
struct CudaGraph::Impl {
  int device = 0;
  cudaGraphExec_t exec = nullptr;
  std::vector<Capture::Member> members;
  std::shared_ptr<Replays> replays;
  std::shared_ptr<GraphMemory> memory;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    const RelaxedCapture relaxed;
    try {
      if (const auto latest = replays->latest()) latest->await();
    } catch (const std::exception&) {
      // The GPU takes no more work: the next call says so.
    }
    if (exec != nullptr) cudaGraphExecDestroy(exec);
  }
};

CudaGraph::CudaGraph() = default;
CudaGraph::~CudaGraph() = default;

void CudaGraph::capture(Queue& queue, const std::function<void()>& body) {
  TESSERA_CHECK_AS(StateError, impl_ == nullptr, kCapture,
                   "there is a graph already; capture into a new one");
  Capture capture;
  queue.handle();  // joins, as the first one
  body();
  cudaGraph_t graph = capture.end();
  auto impl = std::make_unique<Impl>();
  impl->device = capture.members().front().device;
  impl->members = capture.members();
  impl->replays = capture.replays();
  impl->memory = capture.memory();
  const DeviceGuard guard(impl->device);
  const cudaError_t error = cudaGraphInstantiate(&impl->exec, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(error, kCapture, "cudaGraphInstantiate");
  impl_ = std::move(impl);
}

void CudaGraph::replay(Queue& queue) {
  TESSERA_CHECK_AS(StateError, impl_ != nullptr, kReplay, "there is no graph; capture one first");
  check_not_capturing(kReplay);
  const DeviceGuard guard(impl_->device);
  check_cuda(cudaGraphLaunch(impl_->exec, queue.handle()), kReplay, "cudaGraphLaunch");
  impl_->replays->set_latest(queue.record());
}

std::size_t CudaGraph::memory_bytes() const {
  return impl_ == nullptr ? 0 : impl_->memory->bytes();
}

}  // namespace tessera::cuda
