#pragma once

/// Errors of the emulated CUDA runtime: of a thread, and of a GPU that failed. Private to the
/// runtime.

#include <cuda_runtime_api.h>

#include <new>
#include <string>
#include <utility>

namespace tessera::emulated {

/// Notes an error as the calling thread's last one; returns it.
cudaError_t note(cudaError_t error);

/// What the GPU `device` died of: an error that every later call returns, as on a GPU. The text
/// goes to stderr. The first failure stays.
void fail_device(int device, cudaError_t error, const std::string& text);
/// cudaSuccess while the GPU lives.
cudaError_t failure_of(int device);
void forget_failure(int device);

/// The calling thread's GPU.
int current_device();
/// How many GPUs there are: TESSERA_EMULATED_GPUS, 4 where it is not set.
int device_count();
bool is_device(int device);

/// While it lives, the thread is inside a host function, where CUDA allows no call.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

/// Why no call is possible: no GPU, a GPU that failed, a call from a host function.
cudaError_t refusal();

/// The frame of every function of the runtime: refuses, runs `body`, notes its error.
template <class Body>
cudaError_t call(Body&& body) {
  if (const cudaError_t error = refusal(); error != cudaSuccess) return note(error);
  try {
    return note(std::forward<Body>(body)());
  } catch (const std::bad_alloc&) {
    return note(cudaErrorMemoryAllocation);
  }
}

}  // namespace tessera::emulated
