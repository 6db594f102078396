// Launches of kernels, and what is known of them.

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "tessera/tests/support/emulated_gpu/runtime/block_runner.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_errors.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_streams.h"

namespace tessera::emulated {
namespace {

constexpr int kSharedOptIn = 227 << 10, kSharedByDefault = 48 << 10;

// The dynamic shared memory that cudaFuncSetAttribute allowed.
struct Limits {
  std::mutex mutex;
  std::map<const void*, int> shared_bytes;
};
Limits& limits() {
  static auto* all = new Limits;
  return *all;
}

int shared_limit(const void* function) {
  const std::lock_guard lock(limits().mutex);
  const auto found = limits().shared_bytes.find(function);
  return found == limits().shared_bytes.end() ? kSharedByDefault : found->second;
}

cudaError_t check(const Launch& launch, const Handle& to) {
  if (!to.valid) return cudaErrorInvalidResourceHandle;
  if (to.stream != nullptr && to.stream->device != current_device())
    return cudaErrorInvalidResourceHandle;
  if (launch_problem(launch) != nullptr) return cudaErrorInvalidConfiguration;
  const bool too_much =
      launch.function != nullptr &&
      launch.shared_bytes > static_cast<std::size_t>(shared_limit(launch.function));
  return too_much ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

cudaError_t issue(cudaStream_t stream, const Launch& launch, const char* kernel,
                  std::function<void()> body) {
  return call([&] {
    const Handle to = resolve(stream);
    if (const cudaError_t error = check(launch, to); error != cudaSuccess) return error;
    return submit(to, [launch, kernel, body = std::move(body)] { run_grid(launch, kernel, body); });
  });
}

}  // namespace tessera::emulated

using namespace tessera::emulated;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute which, int value) {
  return call([&] {
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorNotSupported;
    if (value < 0 || value > kSharedOptIn) return cudaErrorInvalidValue;
    const std::lock_guard lock(limits().mutex);
    limits().shared_bytes[function] = value;
    return cudaSuccess;
  });
}

}  // extern "C"
