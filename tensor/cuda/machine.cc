#include <cuda_runtime_api.h>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/capture.h"
#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/error_meaning.h"
#include "tessera/tensor/cuda/machine.h"
#include "tessera/tensor/cuda/memory.h"

namespace tessera {
namespace {

cuda::DeviceFacts facts_of(int device) {
  cudaDeviceProp properties{};
  int has_pools = 0;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return {};
  cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, device);
  return {.name = properties.name,
          .major = properties.major,
          .minor = properties.minor,
          .has_memory_pools = has_pools != 0};
}

// Errors are part of the result: nothing is thrown, and no error is left for the next call.
cuda::MachineFacts facts_of_machine() {
  cuda::MachineFacts facts{.has_cuda = true};
  cudaRuntimeGetVersion(&facts.runtime_version);
  cudaDriverGetVersion(&facts.driver_version);
  const int count = cuda_device_count();
  int known = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&known); error != cudaSuccess)
    facts.count_error = cudaGetErrorString(error);
  for (int device = 0; device < count && device < known; ++device)
    facts.devices.push_back(facts_of(device));
  cudaGetLastError();
  return facts;
}

}  // namespace

namespace cuda {

const MachineFacts& this_machine() {
  static const MachineFacts facts = facts_of_machine();
  return facts;
}

std::vector<std::pair<int, int>> pairs_without_peer_access() {
  std::vector<std::pair<int, int>> pairs;
  const int count = static_cast<int>(this_machine().devices.size());
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b) {
      int reaches = 0;
      if (a != b && (cudaDeviceCanAccessPeer(&reaches, a, b) != cudaSuccess || reaches == 0))
        pairs.emplace_back(a, b);
    }
  cudaGetLastError();
  return pairs;
}

void* take_pinned(std::size_t bytes) {
  const RelaxedCapture relaxed;  // another thread may be capturing
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(error, "take_pinned", "cudaHostAlloc");
  return data;
}

}  // namespace cuda

std::string cuda_problem() { return cuda::machine_problem(cuda::this_machine()); }
std::string cuda_problem(int device) { return cuda::gpu_problem(cuda::this_machine(), device); }

}  // namespace tessera

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
