// The emulated GPUs: their number, the current one, their properties.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_errors.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_memory.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_streams.h"
#include "tessera/tools/cuda/device_count.h"

namespace tessera::emulated {
namespace {

thread_local int chosen_device = 0;

// Few multiprocessors, so that grids that fill a GPU stay small.
constexpr int kMultiprocessors = 4;
constexpr int kSharedPerBlock = 48 << 10, kSharedOptIn = 227 << 10, kSharedPerProcessor = 228 << 10;
constexpr int kThreadsPerProcessor = 2048, kBlocksPerProcessor = 32;
constexpr int kRegisters = 65536;
constexpr int kLevel2Bytes = 32 << 20;

struct NamedAttribute {
  cudaDeviceAttr which;
  int value;
};
constexpr NamedAttribute kAttributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 0x7fffffff},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, kSharedPerBlock},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, kSharedOptIn},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, kSharedPerProcessor},
    {cudaDevAttrReservedSharedMemoryPerBlock, 1 << 10},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxRegistersPerBlock, kRegisters},
    {cudaDevAttrMaxRegistersPerMultiprocessor, kRegisters},
    {cudaDevAttrClockRate, 1'000'000},
    {cudaDevAttrMemoryClockRate, 1'000'000},
    {cudaDevAttrGlobalMemoryBusWidth, 64},
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrMultiProcessorCount, kMultiprocessors},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrL2CacheSize, kLevel2Bytes},
    {cudaDevAttrMaxThreadsPerMultiProcessor, kThreadsPerProcessor},
    {cudaDevAttrMaxBlocksPerMultiprocessor, kBlocksPerProcessor},
    {cudaDevAttrAsyncEngineCount, 2},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
    {cudaDevAttrHostRegisterSupported, 1},
    {cudaDevAttrMemoryPoolsSupported, 1},
};

int setting(const char* name, int usual) {
  const char* text = std::getenv(name);
  return text == nullptr ? usual : std::atoi(text);
}

int capability_major() { return setting("TESSERA_EMULATED_COMPUTE_CAPABILITY", 9); }
int driver_version() { return setting("TESSERA_EMULATED_DRIVER", CUDART_VERSION); }

void describe(int device, cudaDeviceProp& p) {
  p = {};
  std::snprintf(p.name, sizeof(p.name), "Emulated GPU");
  std::snprintf(p.uuid.bytes, sizeof(p.uuid.bytes), "emulated GPU %d", device);
  p.totalGlobalMem = device_memory_size();
  p.sharedMemPerBlock = kSharedPerBlock;
  p.sharedMemPerBlockOptin = kSharedOptIn;
  p.sharedMemPerMultiprocessor = kSharedPerProcessor;
  p.reservedSharedMemPerBlock = 1 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = kRegisters;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  const int threads[] = {1024, 1024, 64}, blocks[] = {0x7fffffff, 65535, 65535};
  std::copy(threads, threads + 3, p.maxThreadsDim);
  std::copy(blocks, blocks + 3, p.maxGridSize);
  p.major = capability_major();
  p.multiProcessorCount = kMultiprocessors;
  p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = 1;
  p.asyncEngineCount = 2;
  p.memoryBusWidth = 64;
  p.l2CacheSize = kLevel2Bytes;
  p.maxThreadsPerMultiProcessor = kThreadsPerProcessor;
  p.maxBlocksPerMultiProcessor = kBlocksPerProcessor;
  p.streamPrioritiesSupported = p.memoryPoolsSupported = p.hostRegisterSupported = 1;
  p.canUseHostPointerForRegisteredMem = 1;
  p.pciDeviceID = device;
  p.hostNumaId = -1;
}

// Pairs whose first may reach the second's memory.
struct Peers {
  std::mutex mutex;
  std::set<std::pair<int, int>> pairs;
};
Peers& peers() {
  static auto* all = new Peers;
  return *all;
}

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

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return call([&] { return is_device(device) ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&] {
    if (properties == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    describe(device, *properties);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return call([&] {
    if (value == nullptr || which < 1 || which >= cudaDevAttrMax) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    *value = 0;
    for (const NamedAttribute& each : kAttributes)
      if (each.which == which) *value = each.value;
    if (which == cudaDevAttrPciDeviceId) *value = device;
    if (which == cudaDevAttrComputeCapabilityMajor) *value = capability_major();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* out, int length, int device) {
  return call([&] {
    if (out == nullptr || length < 13) return cudaErrorInvalidValue;
    if (!is_device(device)) return cudaErrorInvalidDevice;
    std::snprintf(out, static_cast<std::size_t>(length), "0000:00:%02x.0", device);
    return cudaSuccess;
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

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call([&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call([&] {
    if (can == nullptr) return cudaErrorInvalidValue;
    if (!is_device(device) || !is_device(peer)) return cudaErrorInvalidDevice;
    *can = device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call([&] {
    if (flags != 0) return cudaErrorInvalidValue;
    if (!is_device(peer) || peer == current_device()) return cudaErrorInvalidDevice;
    const std::lock_guard lock(peers().mutex);
    return peers().pairs.insert({current_device(), peer}).second
               ? cudaSuccess
               : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return call([&] {
    const std::lock_guard lock(peers().mutex);
    return peers().pairs.erase({current_device(), peer}) == 1 ? cudaSuccess
                                                              : cudaErrorPeerAccessNotEnabled;
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
