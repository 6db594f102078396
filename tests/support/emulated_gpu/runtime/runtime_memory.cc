// The book of allocations; cudaMalloc and pinned memory.

#include "tessera/tests/support/emulated_gpu/runtime/runtime_memory.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_errors.h"

namespace tessera::emulated {
namespace {

constexpr std::size_t kAlignment = 512;
constexpr int kFreshByte = 0xFF, kRetiredByte = 0xDD;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kMostRetired = 0;
#else
constexpr std::size_t kMostRetired = std::size_t{64} << 20;
#endif

struct Book {
  std::mutex mutex;
  std::map<std::uintptr_t, Allocation> allocations;
  std::deque<std::pair<std::shared_ptr<std::byte>, std::size_t>> retired;
  std::size_t retired_bytes = 0;
  std::array<std::size_t, 64> held{};
};
Book& book() {
  static auto* all = new Book;
  return *all;
}

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

std::map<std::uintptr_t, Allocation>::iterator holder(const void* address) {
  auto& all = book().allocations;
  auto next = all.upper_bound(number(address));
  if (next == all.begin()) return all.end();
  --next;
  return number(address) - next->first < std::max<std::size_t>(next->second.bytes, 1) ? next
                                                                                      : all.end();
}

}  // namespace

std::shared_ptr<std::byte> allocate_bytes(std::size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, kAlignment, bytes) != 0) throw std::bad_alloc();
  return {static_cast<std::byte*>(data), [](std::byte* memory) { std::free(memory); }};
}

void add_allocation(const Allocation& allocation) {
  const std::lock_guard lock(book().mutex);
  book().allocations[number(allocation.memory.get())] = allocation;
}

std::optional<Allocation> find_allocation(const void* address) {
  const std::lock_guard lock(book().mutex);
  const auto found = holder(address);
  if (found == book().allocations.end()) return std::nullopt;
  return found->second;
}

std::optional<Allocation> remove_allocation(const void* address) {
  const std::lock_guard lock(book().mutex);
  const auto found = book().allocations.find(number(address));
  if (found == book().allocations.end()) return std::nullopt;
  Allocation allocation = std::move(found->second);
  book().allocations.erase(found);
  return allocation;
}

void retire(const Allocation& allocation) {
  std::memset(allocation.memory.get(), kRetiredByte, allocation.bytes);
  std::deque<std::pair<std::shared_ptr<std::byte>, std::size_t>> ends;  // after the lock
  const std::lock_guard lock(book().mutex);
  book().retired.emplace_back(allocation.memory, allocation.bytes);
  book().retired_bytes += allocation.bytes;
  while (book().retired_bytes > kMostRetired || (kMostRetired == 0 && !book().retired.empty())) {
    book().retired_bytes -= book().retired.front().second;
    ends.push_back(std::move(book().retired.front()));
    book().retired.pop_front();
  }
}

std::size_t device_memory_size() {
  static const std::size_t size = [] {
    const char* text = std::getenv("TESSERA_EMULATED_MEMORY");
    return text == nullptr ? std::size_t{4} << 30 : std::strtoull(text, nullptr, 10);
  }();
  return size;
}

std::size_t device_memory_held(int device) {
  const std::lock_guard lock(book().mutex);
  return book().held[static_cast<std::size_t>(device)];
}

bool hold_device_memory(int device, std::size_t bytes) {
  const std::lock_guard lock(book().mutex);
  std::size_t& held = book().held[static_cast<std::size_t>(device)];
  if (bytes > device_memory_size() - held) return false;
  held += bytes;
  return true;
}

void release_device_memory(int device, std::size_t bytes) {
  const std::lock_guard lock(book().mutex);
  book().held[static_cast<std::size_t>(device)] -= bytes;
}

namespace {

cudaError_t allocate_pinned(void** out, std::size_t bytes, unsigned flags) {
  const unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if (out == nullptr || (flags & ~known) != 0) return cudaErrorInvalidValue;
  *out = nullptr;
  if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  const Allocation allocation{
      .memory = allocate_bytes(bytes), .bytes = bytes, .device = current_device(), .pinned = true};
  add_allocation(allocation);
  *out = allocation.memory.get();
  return cudaSuccess;
}

// cudaFree and cudaFreeHost wait for all work of the GPU.
cudaError_t free_waiting(void* data, bool pinned) {
  if (data == nullptr) return cudaSuccess;
  if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) return error;
  const std::optional<Allocation> found = find_allocation(data);
  if (!found || found->pinned != pinned || found->memory.get() != data || found->pool != nullptr)
    return cudaErrorInvalidValue;
  const cudaError_t error = synchronize_device(found->device);
  remove_allocation(data);
  if (!pinned) {
    retire(*found);
    if (!found->of_graph) release_device_memory(found->device, found->bytes);
  }
  return error;
}

}  // namespace
}  // namespace tessera::emulated

using namespace tessera::emulated;

extern "C" {

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  return call([&] {
    if (out == nullptr) return cudaErrorInvalidValue;
    *out = nullptr;
    if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) return error;
    if (bytes == 0) return cudaSuccess;
    if (!hold_device_memory(current_device(), bytes)) return cudaErrorMemoryAllocation;
    const Allocation allocation{
        .memory = allocate_bytes(bytes), .bytes = bytes, .device = current_device()};
    std::memset(allocation.memory.get(), kFreshByte, bytes);
    add_allocation(allocation);
    *out = allocation.memory.get();
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* data) {
  return call([&] {
    const std::optional<Allocation> found = find_allocation(data);
    if (!found || found->pool == nullptr) return free_waiting(data, false);
    const cudaError_t error = synchronize_device(found->device);
    const cudaError_t freed = cudaFreeAsync(data, nullptr);
    return error != cudaSuccess ? error : freed;
  });
}

cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned flags) {
  return call([&] { return allocate_pinned(out, bytes, flags); });
}

cudaError_t cudaFreeHost(void* data) {
  return call([&] { return free_waiting(data, true); });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call([&] {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    *total = device_memory_size();
    *free = *total - device_memory_held(current_device());
    return cudaSuccess;
  });
}

}  // extern "C"
