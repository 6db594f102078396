#include "tessera/tensor/cuda/device_guard.h"

#include <cuda_runtime_api.h>

#include "tessera/tensor/cuda/check_cuda.h"

namespace tessera::cuda {

namespace {

// Whether a guard or other code of this thread has chosen a GPU. Until then GPU 0 is only the
// runtime's default: restoring it would create a context there, some hundred MB, in every rank of a
// host.
constinit thread_local bool thread_has_chosen = false;

}  // namespace

DeviceGuard::DeviceGuard(int device) {
  check_cuda(cudaGetDevice(&previous_), "cuda", "cudaGetDevice");
  const bool goes_back = thread_has_chosen || previous_ != 0;
  thread_has_chosen = true;
  if (previous_ == device) return;
  check_cuda(cudaSetDevice(device), "cuda", "cudaSetDevice");
  changed_ = goes_back;
}

DeviceGuard::~DeviceGuard() {
  if (changed_) cudaSetDevice(previous_);
}

}  // namespace tessera::cuda
