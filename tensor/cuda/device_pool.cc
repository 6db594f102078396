#include "tessera/tensor/cuda/device_pool.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/capture.h"
#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/cuda/error_meaning.h"

namespace tessera {
namespace cuda {
namespace {

constexpr const char* kWhere = "allocator";

int attribute(int device, cudaDeviceAttr which) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, device), kWhere, "cudaDeviceGetAttribute");
  return value;
}

void check_usable(int device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), kWhere, "cudaGetDeviceProperties");
  const std::string problem =
      device_problem({.name = properties.name,
                      .major = properties.major,
                      .minor = properties.minor,
                      .has_memory_pools = attribute(device, cudaDevAttrMemoryPoolsSupported) != 0});
  TESSERA_CHECK_AS(DeviceError, problem.empty(), "device", "cuda:{}: {}", device, problem);
}

template <class T>
void set(cudaMemPool_t pool, cudaMemPoolAttr which, T value) {
  check_cuda(cudaMemPoolSetAttribute(pool, which, &value), kWhere, "cudaMemPoolSetAttribute");
}

std::size_t get(cudaMemPool_t pool, cudaMemPoolAttr which) {
  std::uint64_t value = 0;
  check_cuda(cudaMemPoolGetAttribute(pool, which, &value), kWhere, "cudaMemPoolGetAttribute");
  return value;
}

CUstream_st* new_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), kWhere, "cudaStreamCreate");
  return stream;
}

// Orders later work of `to` after the work that `from` holds, so that `to` may reuse memory
// returned on `from`.
void put_behind(CUstream_st* from, CUstream_st* to) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), kWhere, "cudaEventCreate");
  cudaError_t error = cudaEventRecord(event, from);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(to, event, 0);
  cudaEventDestroy(event);
  check_cuda(error, kWhere, "cudaStreamWaitEvent");
}

}  // namespace

DevicePool& DevicePool::of(int device) {
  // Never destroyed: blocks in static variables are returned after main() has ended.
  static auto* mutex = new std::mutex;
  static auto* pools = new std::map<int, std::unique_ptr<DevicePool>>;
  const std::lock_guard lock(*mutex);
  std::unique_ptr<DevicePool>& place = (*pools)[device];
  if (place == nullptr) place = std::make_unique<DevicePool>(device);
  return *place;
}

DevicePool::DevicePool(int device) : device_(device) {
  const DeviceGuard guard(device);
  check_usable(device);
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  check_cuda(cudaMemPoolCreate(&pool_, &properties), kWhere, "cudaMemPoolCreate");
  // Synchronizing must not return memory to the GPU.
  set(pool_, cudaMemPoolAttrReleaseThreshold, std::numeric_limits<std::uint64_t>::max());
  // Memory is reused by the stream on which it was returned, or by one that waited for that stream.
  // The pool's other policies are off: reuse that depends on the GPU's progress would make peak
  // memory differ from run to run, and hidden waits would order streams that the program does not
  // order.
  set(pool_, cudaMemPoolReuseFollowEventDependencies, 1);
  set(pool_, cudaMemPoolReuseAllowOpportunistic, 0);
  set(pool_, cudaMemPoolReuseAllowInternalDependencies, 0);
  share_with_peers();
  own_stream_ = new_stream();
  gone_stream_ = new_stream();
  trim_stream_ = new_stream();
  streams_ = {own_stream_, gone_stream_};
}

// Rank threads on several GPUs read each other's memory.
void DevicePool::share_with_peers() {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), kWhere, "cudaGetDeviceCount");
  for (int peer = 0; peer < count; ++peer) {
    int reaches = 0;
    if (peer == device_) continue;
    check_cuda(cudaDeviceCanAccessPeer(&reaches, peer, device_), kWhere, "cudaDeviceCanAccessPeer");
    if (reaches == 0) continue;
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = peer;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    check_cuda(cudaMemPoolSetAccess(pool_, &access, 1), kWhere, "cudaMemPoolSetAccess");
  }
}

void* DevicePool::try_take(std::size_t bytes, CUstream_st* stream) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocFromPoolAsync(&data, bytes, pool_, stream);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(error, kWhere, "cudaMallocFromPoolAsync");
  return data;
}

void* DevicePool::take(std::size_t bytes, CUstream_st* stream) {
  void* data = try_take(bytes, stream);
  if (data != nullptr) return data;
  trim();  // returns memory freed on other streams
  return try_take(bytes, stream);
}

void* DevicePool::take_now(std::size_t bytes) {
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  void* data = take(bytes, own_stream_);
  check_cuda(cudaStreamSynchronize(own_stream_), kWhere, "cudaStreamSynchronize");
  return data;
}

// The pool passes memory on along events only, even if the host has waited.
void DevicePool::settle(CUstream_st* stream) {
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  check_cuda(cudaStreamSynchronize(stream), kWhere, "cudaStreamSynchronize");
  put_behind(stream, own_stream_);
}

CudaMemory DevicePool::memory() const {
  const RelaxedCapture relaxed;  // CUDA refuses even these reads while a stream is captured
  return {.reserved = get(pool_, cudaMemPoolAttrReservedMemCurrent),
          .reserved_peak = get(pool_, cudaMemPoolAttrReservedMemHigh),
          .in_use = get(pool_, cudaMemPoolAttrUsedMemCurrent),
          .in_use_peak = get(pool_, cudaMemPoolAttrUsedMemHigh)};
}

void DevicePool::add(CUstream_st* stream) {
  const std::lock_guard lock(mutex_);
  streams_.insert(stream);
}

void DevicePool::remove(CUstream_st* stream) noexcept {
  const std::lock_guard lock(mutex_);
  streams_.erase(stream);
  try {
    const DeviceGuard guard(device_);
    const RelaxedCapture relaxed;
    put_behind(stream, gone_stream_);
  } catch (const std::exception&) {
    // The GPU accepts no more work; the next call reports it.
  }
}

std::unique_lock<std::mutex> DevicePool::hold_off_trims() { return std::unique_lock(mutex_); }

// The host waits without the lock: work of a stream may depend on another thread.
void DevicePool::await_streams() {
  {
    const std::lock_guard lock(mutex_);
    for (CUstream_st* stream : streams_) {
      if (!is_capturing(stream, kWhere)) put_behind(stream, trim_stream_);
    }
  }
  check_cuda(cudaStreamSynchronize(trim_stream_), kWhere, "cudaStreamSynchronize");
}

void DevicePool::trim() {
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  await_streams();
  check_cuda(cudaMemPoolTrimTo(pool_, 0), kWhere, "cudaMemPoolTrimTo");
}

}  // namespace cuda

namespace {

cuda::DevicePool& pool_of(Device device, const char* where) {
  TESSERA_CHECK_AS(
      DeviceError,
      device.type == DeviceType::kCuda && device.index >= 0 && device.index < cuda_device_count(),
      where, "{} is no GPU of this process, which sees {}", device.str(), cuda_device_count());
  return cuda::DevicePool::of(device.index);
}

}  // namespace

CudaMemory cuda_memory(Device device) { return pool_of(device, "cuda_memory").memory(); }

void empty_cuda_cache(Device device) { pool_of(device, "empty_cuda_cache").trim(); }

}  // namespace tessera
