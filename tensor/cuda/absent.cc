// The interface of this folder in a build without the CUDA toolkit.

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/memory.h"
#include "tessera/tensor/cuda/queue.h"

namespace tessera {
namespace cuda {

std::shared_ptr<Queue> start_queue(Device device, const std::string& name) {
  throw_error<DeviceError>("stream.create",
                           "{} cannot run \"{}\": this build has no CUDA; use the cpu device, or "
                           "build where the CUDA toolkit is installed",
                           device.str(), name);
}

}  // namespace cuda

CudaMemory cuda_memory(Device device) {
  throw_error<DeviceError>("cuda_memory", "{} is no GPU of this process: this build has no CUDA",
                           device.str());
}

void empty_cuda_cache(Device device) {
  throw_error<DeviceError>("empty_cuda_cache",
                           "{} is no GPU of this process: this build has no CUDA", device.str());
}

}  // namespace tessera
