// The emulated GPUs: their number, the current one, their properties.

#include <cstdio>
#include <cstdlib>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_errors.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_memory.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_streams.h"
#include "tessera/tools/cuda/device_count.h"

namespace tessera::emulated {
namespace {

thread_local int chosen_device = 0;

int setting(const char* name, int usual) {
  const char* text = std::getenv(name);
  return text == nullptr ? usual : std::atoi(text);
}

int capability_major() { return setting("TESSERA_EMULATED_COMPUTE_CAPABILITY", 9); }
int driver_version() { return setting("TESSERA_EMULATED_DRIVER", CUDART_VERSION); }

}  // namespace

int current_device() { return chosen_device; }

int device_count() {
  static const int count = cuda::device_count();
  return count;
}

}  // namespace tessera::emulated

using namespace tessera::emulated;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return note(cudaErrorInvalidValue);
  *count = device_count();
  if (driver_version() < CUDART_VERSION) return note(cudaErrorInsufficientDriver);
  return note(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (device_count() == 0) return note(cudaErrorNoDevice);
  if (!is_device(device)) return note(cudaErrorInvalidDevice);
  chosen_device = device;
  return note(failure_of(device));
}

cudaError_t cudaGetDevice(int* device) {
  return call([&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = chosen_device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&] {
    if (properties == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    *properties = {};  // what Tessera reads, and the memory
    std::snprintf(properties->name, sizeof(properties->name), "Emulated GPU");
    properties->totalGlobalMem = device_memory_size();
    properties->major = capability_major();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return call([&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    switch (which) {
      case cudaDevAttrComputeCapabilityMajor:
        *value = capability_major();
        return cudaSuccess;
      case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        return cudaSuccess;
      default:
        return cudaErrorNotSupported;  // Tessera asks for no other
    }
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([] { return synchronize_device(current_device()); });
}

cudaError_t cudaDeviceReset() {
  if (device_count() == 0) return note(cudaErrorNoDevice);
  synchronize_device(current_device());
  forget_failure(current_device());
  cudaGetLastError();
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call([&] {
    if (can == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device) || !is_device(peer)) return cudaErrorInvalidDevice;
    *can = device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return note(cudaErrorInvalidValue);
  *version = driver_version();
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return note(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
