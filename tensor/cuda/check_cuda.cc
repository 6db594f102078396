#include "tessera/tensor/cuda/check_cuda.h"

#include <cuda_runtime_api.h>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/error_meaning.h"

namespace tessera::cuda {

void check_cuda(int code, const char* where, const char* what) {
  if (code == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // clears the error, which the next call would report again
  const auto error = static_cast<cudaError_t>(code);
  const std::string message =
      error_message(code, cudaGetErrorName(error), cudaGetErrorString(error), what);
  if (error_meaning(code).out_of_memory) throw OutOfMemory(error_text(where, message));
  throw DeviceError(error_text(where, message));
}

}  // namespace tessera::cuda
