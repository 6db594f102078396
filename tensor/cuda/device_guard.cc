#include "tessera/tensor/cuda/device_guard.h"

#include <cuda_runtime_api.h>

#include "tessera/tensor/cuda/check_cuda.h"

namespace tessera::cuda {

DeviceGuard::DeviceGuard(int device) {
  check_cuda(cudaGetDevice(&previous_), "cuda", "cudaGetDevice");
  if (previous_ == device) return;
  check_cuda(cudaSetDevice(device), "cuda", "cudaSetDevice");
  changed_ = true;
}

DeviceGuard::~DeviceGuard() {
  if (changed_) cudaSetDevice(previous_);
}

}  // namespace tessera::cuda
