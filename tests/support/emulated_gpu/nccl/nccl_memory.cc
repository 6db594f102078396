// Memory of the emulated NCCL: ncclMemAlloc, registered buffers, windows.

#include <fmt/core.h>

#include <map>
#include <mutex>

#include "tessera/tests/support/emulated_gpu/nccl/nccl_group.h"
#include "tessera/tests/support/emulated_gpu/vendor_memory.h"

namespace tessera::emulated::nccl {
namespace {

constexpr std::size_t kGranularity = NCCL_WIN_REQUIRED_ALIGNMENT;

struct Block {
  void* base = nullptr;  // what cudaMalloc gave
  std::size_t bytes = 0;
  int registered = 0;  // windows and buffers that lie in it
};
struct Blocks {
  std::mutex mutex;
  std::map<const char*, Block> all;
};
Blocks& blocks() {
  static Blocks live;
  return live;
}

// The block that holds these bytes; null where none does. With the mutex.
Block* block_of(const void* at, std::size_t bytes) {
  const auto* byte = static_cast<const char*>(at);
  auto next = blocks().all.upper_bound(byte);
  if (next == blocks().all.begin()) return nullptr;
  auto& [start, block] = *std::prev(next);
  return byte + bytes <= start + block.bytes ? &block : nullptr;
}

void count_registration(const void* at, std::size_t bytes, int change) {
  const std::lock_guard lock(blocks().mutex);
  if (Block* block = block_of(at, bytes)) block->registered += change;
}

std::string check_window(const void* at, std::size_t bytes, int flags) {
  if (at == nullptr || bytes == 0) return "no memory";
  if (flags != NCCL_WIN_DEFAULT && flags != NCCL_WIN_COLL_SYMMETRIC) {
    return fmt::format("flags {}", flags);
  }
  if (reinterpret_cast<std::uintptr_t>(at) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return fmt::format("{} is no multiple of {}", at, NCCL_WIN_REQUIRED_ALIGNMENT);
  }
  const std::lock_guard lock(blocks().mutex);
  if (block_of(at, bytes) == nullptr) {
    return fmt::format("{} bytes at {} are no memory of ncclMemAlloc", bytes, at);
  }
  return {};
}

// One rank's part of a registration: all ranks must come with one size and one set of flags.
ncclResult_t window_result(Communicator& me, std::uint64_t number, const Window& mine) {
  Clique& clique = *me.clique;
  const Clique::WindowBarrier& barrier = clique.windows[number];
  if (clique.members[me.rank].error != ncclSuccess) return clique.members[me.rank].error;
  if (barrier.bytes != mine.bytes || barrier.flags != mine.flags) {
    clique.fail(ncclInvalidUsage,
                fmt::format("window {} has {} bytes on one rank and {} on rank {}, or other flags",
                            number, barrier.bytes, mine.bytes, me.rank));
    return ncclInvalidUsage;
  }
  if (barrier.arrived == clique.size()) return ncclSuccess;
  return clique.is_left_alone(me.rank) ? ncclRemoteError : ncclInProgress;
}

}  // namespace
}  // namespace tessera::emulated::nccl

extern "C" {

using namespace tessera::emulated;        // NOLINT: what follows is the API itself
using namespace tessera::emulated::nccl;  // NOLINT: likewise

ncclResult_t ncclMemAlloc(void** at, size_t bytes) {
  if (at == nullptr || bytes == 0)
    return refuse(__func__, ncclInvalidArgument, "no place, or no bytes");
  Block block{.bytes = (bytes + kGranularity - 1) / kGranularity * kGranularity};
  const cudaError_t error = cudaMalloc(&block.base, block.bytes + kGranularity);
  if (error != cudaSuccess) {
    return refuse(__func__, ncclUnhandledCudaError, cudaGetErrorString(error));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(block.base);
  char* start =
      static_cast<char*>(block.base) + (kGranularity - address % kGranularity) % kGranularity;
  const std::lock_guard lock(blocks().mutex);
  blocks().all[start] = block;
  *at = start;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* at) {
  if (at == nullptr) return ncclSuccess;
  Block block;
  {
    const std::lock_guard lock(blocks().mutex);
    const auto found = blocks().all.find(static_cast<const char*>(at));
    if (found == blocks().all.end()) {
      return refuse(__func__, ncclInvalidArgument, "this is no memory of ncclMemAlloc");
    }
    if (found->second.registered != 0) {
      return refuse(__func__, ncclInvalidUsage,
                    "the memory is still registered with a communicator");
    }
    block = found->second;
    blocks().all.erase(found);
  }
  return cudaFree(block.base) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* at, size_t bytes, void** handle) {
  const auto me = find(__func__, comm);
  if (me == nullptr) return ncclInvalidArgument;
  if (const ncclResult_t bad = check_ready(__func__, *me); bad != ncclSuccess) return bad;
  if (at == nullptr || bytes == 0 || handle == nullptr || !is_device_memory(at, bytes)) {
    return refuse(__func__, ncclInvalidArgument, "no place, or no memory of the GPU");
  }
  auto made = std::make_unique<char>();
  *handle = made.get();
  me->buffers[*handle] = {std::move(made), at, bytes};
  count_registration(at, bytes, 1);
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const auto me = find(__func__, comm);
  if (me == nullptr) return ncclInvalidArgument;
  const auto found = me->buffers.find(handle);
  if (found == me->buffers.end()) {
    return refuse(__func__, ncclInvalidArgument, "no registration of this communicator");
  }
  count_registration(found->second.at, found->second.bytes, -1);
  me->buffers.erase(found);
  return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* at, size_t bytes, ncclWindow_t* window,
                                    int flags) {
  const auto me = find(__func__, comm);
  if (me == nullptr) return note_error(ncclInvalidArgument);
  if (const ncclResult_t bad = check_ready(__func__, *me); bad != ncclSuccess)
    return note_error(bad);
  std::string why = window == nullptr ? "no place given" : check_window(at, bytes, flags);
  if (!why.empty()) return note_error(refuse(__func__, ncclInvalidArgument, why));
  const std::uint64_t number = me->windows_registered++;
  const Window made{static_cast<const char*>(at), bytes, flags, number};
  auto handle = std::make_unique<char>();
  *window = reinterpret_cast<ncclWindow_t>(handle.get());
  me->windows[handle.get()] = made;
  me->window_handles.push_back(std::move(handle));
  count_registration(at, bytes, 1);
  {
    const std::lock_guard lock(me->clique->mutex);
    Clique::WindowBarrier& barrier = me->clique->windows[number];
    if (barrier.arrived++ == 0) barrier.bytes = bytes, barrier.flags = flags;
    me->pending.push_back(
        [me = me.get(), number, made] { return window_result(*me, number, made); });
    me->clique->changed.notify_all();
  }
  return note_error(end_host_call(me));
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  const auto me = find(__func__, comm);
  if (me == nullptr) return ncclInvalidArgument;
  const auto found = me->windows.find(window);
  if (found == me->windows.end()) {
    return refuse(__func__, ncclInvalidArgument, "no window of this communicator");
  }
  count_registration(found->second.at, found->second.bytes, -1);
  me->windows.erase(found);
  return ncclSuccess;
}

}  // extern "C"
