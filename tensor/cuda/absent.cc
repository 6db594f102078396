// The interface of this folder in a build without the CUDA toolkit.

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/error_meaning.h"
#include "tessera/tensor/cuda/graph.h"
#include "tessera/tensor/cuda/machine.h"
#include "tessera/tensor/cuda/memory.h"
#include "tessera/tensor/cuda/queue.h"

namespace tessera {
namespace cuda {

DeviceGuard::DeviceGuard(int device) {
  throw_error<DeviceError>("cuda", "there is no GPU {}: this build has no CUDA", device);
}
DeviceGuard::~DeviceGuard() = default;

std::shared_ptr<Queue> start_queue(Device device, const std::string& name) {
  throw_error<DeviceError>("stream.create",
                           "{} cannot run \"{}\": this build has no CUDA; use the cpu device, or "
                           "build where the CUDA toolkit is installed",
                           device.str(), name);
}

struct CudaGraph::Impl {};
CudaGraph::CudaGraph() = default;
CudaGraph::~CudaGraph() = default;
// Without a toolkit no queue exists, so these are never called.
void CudaGraph::capture(Queue&, const std::function<void()>&) {
  throw_error<DeviceError>("cuda_graph.capture", "this build has no CUDA");
}
void CudaGraph::replay(Queue&) {
  throw_error<DeviceError>("cuda_graph.replay", "this build has no CUDA");
}
std::size_t CudaGraph::memory_bytes() const { return 0; }
void check_not_capturing(const char*) {}

const MachineFacts& this_machine() {
  static const MachineFacts facts;
  return facts;
}
std::vector<std::pair<int, int>> pairs_without_peer_access() { return {}; }

void* take_pinned(std::size_t bytes) {
  throw_error<DeviceError>("take_pinned", "{} bytes cannot be page-locked: this build has no CUDA",
                           bytes);
}

}  // namespace cuda

std::string cuda_problem() { return cuda::machine_problem(cuda::this_machine()); }
std::string cuda_problem(int device) { return cuda::gpu_problem(cuda::this_machine(), device); }

CudaMemory cuda_memory(Device device) {
  throw_error<DeviceError>("cuda_memory", "{} is no GPU of this process: this build has no CUDA",
                           device.str());
}

void empty_cuda_cache(Device device) {
  throw_error<DeviceError>("empty_cuda_cache",
                           "{} is no GPU of this process: this build has no CUDA", device.str());
}

}  // namespace tessera
