// Stream-ordered memory. Each allocation is memory of its own: what pools know is only counted, as
// the driver counts it.

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_errors.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_memory.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_pool.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_streams.h"

/// CUDA's name for it.
struct CUmemPoolHandle_st {
  std::shared_ptr<tessera::emulated::Pool> pool;
};

namespace tessera::emulated {
namespace {

constexpr std::size_t kUnit = 512;  // of an allocation

struct Pools {
  std::mutex mutex;
  Order host;  // what hosts have waited for
  std::vector<std::shared_ptr<Pool>> all;
};

Pools& pools() {
  static auto* all = new Pools;
  return *all;
}

// Memory that a graph allocates while it is captured: it is there from then on, and each launch
// finds it fresh.
cudaError_t take_for_graph(void** out, std::size_t bytes, const Handle& to) {
  const Allocation allocation{.memory = allocate_bytes(bytes),
                              .bytes = bytes,
                              .device = to.stream->device,
                              .of_graph = true};
  const auto at_end = [memory = allocation.memory](void*) { remove_allocation(memory.get()); };
  add_allocation(allocation);
  *out = allocation.memory.get();
  capture_memory(*to.stream, std::shared_ptr<void>(*out, at_end));
  return submit(to,
                [memory = allocation.memory.get(), bytes] { std::memset(memory, 0xFF, bytes); });
}

cudaError_t take(void** out, std::size_t bytes, const std::shared_ptr<Pool>& pool,
                 const Handle& to) {
  if (!to.valid) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  if (to.stream != nullptr && is_capturing(*to.stream)) return take_for_graph(out, bytes, to);
  {
    const std::lock_guard lock(pools().mutex);
    if (!pool->take(rounded_up(bytes, kUnit), to.stream.get(), pools().host))
      return cudaErrorMemoryAllocation;
  }
  const Allocation allocation{
      .memory = allocate_bytes(bytes), .bytes = bytes, .device = pool->device, .pool = pool};
  add_allocation(allocation);
  *out = allocation.memory.get();
  return submit(to,
                [memory = allocation.memory, bytes] { std::memset(memory.get(), 0xFF, bytes); });
}

cudaError_t give_back(void* data, const Handle& to) {
  if (!to.valid) return cudaErrorInvalidResourceHandle;
  if (data == nullptr) return cudaErrorInvalidValue;
  const std::optional<Allocation> found = find_allocation(data);
  if (!found || found->pinned || found->memory.get() != data) return cudaErrorInvalidValue;
  if (to.stream != nullptr && is_capturing(*to.stream)) {
    if (!found->of_graph) return cudaErrorInvalidValue;
    return submit(to, [data, bytes = found->bytes] { std::memset(data, 0xDD, bytes); });
  }
  remove_allocation(data);
  const cudaError_t error = submit(
      to, [gone = *found] { retire(gone); }, Runs::kAlways);
  if (found->pool != nullptr) {
    const std::lock_guard lock(pools().mutex);
    found->pool->give_back(rounded_up(found->bytes, kUnit), to.stream.get());
  } else if (!found->of_graph) {
    release_device_memory(found->device, found->bytes);
  }
  return error;
}

}  // namespace

void host_has_seen(const Order& order) {
  const std::lock_guard lock(pools().mutex);
  pools().host.add(order);
  for (const auto& pool : pools().all) pool->trim_to_threshold(pools().host);
}

}  // namespace tessera::emulated

using namespace tessera::emulated;

extern "C" {

cudaError_t cudaMemPoolCreate(cudaMemPool_t* out, const cudaMemPoolProps* properties) {
  return call([&] {
    if (out == nullptr || properties == nullptr ||
        properties->allocType != cudaMemAllocationTypePinned ||
        properties->location.type != cudaMemLocationTypeDevice)
      return cudaErrorInvalidValue;
    if (!is_device(properties->location.id)) return cudaErrorInvalidDevice;
    const std::lock_guard lock(pools().mutex);
    pools().all.push_back(std::make_shared<Pool>(properties->location.id));
    *out = new CUmemPoolHandle_st{pools().all.back()};
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return call([&] {
    if (pool == nullptr) return cudaErrorInvalidValue;
    delete pool;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  return call([&] {
    if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
    const std::lock_guard lock(pools().mutex);
    return pool->pool->set(which, value);
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  return call([&] {
    if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
    if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) return error;
    const std::lock_guard lock(pools().mutex);
    return pool->pool->get(which, value);
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t least) {
  return call([&] {
    if (pool == nullptr) return cudaErrorInvalidValue;
    const std::lock_guard lock(pools().mutex);
    pool->pool->trim(least, pools().host);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access,
                                 std::size_t count) {
  return call([&] {
    if (pool == nullptr || (access == nullptr && count > 0)) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i)
      if (!is_device(access[i].location.id)) return cudaErrorInvalidDevice;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocFromPoolAsync(void** out, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return call([&] {
    if (out == nullptr || pool == nullptr) return cudaErrorInvalidValue;
    *out = nullptr;
    return take(out, bytes, pool->pool, resolve(stream));
  });
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return call([&] { return give_back(data, resolve(stream)); });
}

}  // extern "C"
