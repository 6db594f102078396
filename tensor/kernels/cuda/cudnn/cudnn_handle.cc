// Errors of cuDNN as exceptions, and cuDNN handles.

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_library.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graph.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_meaning.h"

namespace tessera::cuda {
namespace {

struct DeviceHandle {
  int device = 0;
  cudnnHandle_t handle = nullptr;
};

// Handles that no thread uses at present. Never destroyed.
struct FreeHandles {
  std::mutex mutex;
  std::vector<DeviceHandle> handles;
};
FreeHandles& free_handles() {
  static auto* handles = new FreeHandles;
  return *handles;
}

cudnnHandle_t take_free_handle(int device) {
  FreeHandles& free = free_handles();
  const std::lock_guard lock(free.mutex);
  for (DeviceHandle& entry : free.handles) {
    if (entry.device != device) continue;
    const cudnnHandle_t handle = entry.handle;
    std::swap(entry, free.handles.back());
    free.handles.pop_back();
    return handle;
  }
  return nullptr;
}

// One thread's handles, one per GPU.
struct ThreadHandles {
  std::vector<DeviceHandle> handles;

  ~ThreadHandles() {
    FreeHandles& free = free_handles();
    const std::lock_guard lock(free.mutex);
    free.handles.insert(free.handles.end(), handles.begin(), handles.end());
  }
  cudnnHandle_t of(int device, const char* where) {
    for (const DeviceHandle& entry : handles)
      if (entry.device == device) return entry.handle;
    cudnnHandle_t handle = take_free_handle(device);
    if (handle == nullptr) handle = create_cudnn_handle(where);
    handles.push_back({.device = device, .handle = handle});
    return handle;
  }
};

}  // namespace

void check_cudnn(cudnnStatus_t status, const char* where, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char detail[512] = {};
  cudnnGetLastErrorString(detail, sizeof(detail));
  const std::string message = cudnn_message(status, cudnnGetErrorString(status), detail, what);
  if (cudnn_meaning(status).kind == CudnnKind::kOutOfMemory)
    throw OutOfMemory(error_text(where, message));
  throw DeviceError(error_text(where, message));
}

int current_device(const char* where) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), where, "cudaGetDevice");
  return device;
}

cudnnHandle_t create_cudnn_handle(const char* where) {
  cublaslt(where);
  cudnnHandle_t handle = nullptr;
  check_cudnn(cudnnCreate(&handle), where, "cudnnCreate");
  return handle;
}

cudnnHandle_t cudnn_handle(CudaStream stream, const char* where) {
  static thread_local ThreadHandles mine;
  const cudnnHandle_t handle = mine.of(current_device(where), where);
  check_cudnn(cudnnSetStream(handle, stream), where, "cudnnSetStream");
  return handle;
}

cudnnDataType_t cudnn_dtype(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDNN_DATA_DOUBLE;
    case DType::kBF16:
      return CUDNN_DATA_BFLOAT16;
    case DType::kF16:
      return CUDNN_DATA_HALF;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

}  // namespace tessera::cuda
