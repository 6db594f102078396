#pragma once

/// Memory of the emulated GPUs, and pinned memory of the host. Private to the runtime.
///
/// Fresh memory of a GPU holds 0xFF bytes (NaN), and memory that went back 0xDD, each from the
/// moment at which the stream gets there. Outside the address sanitizer, which sees such uses
/// itself, memory that went back is kept for a while, so that a late use reads wrong numbers.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <optional>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_order.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_streams.h"

namespace tessera::emulated {

class Pool;

/// Bytes of the host that are freed with it; throws std::bad_alloc.
std::shared_ptr<std::byte> allocate_bytes(std::size_t bytes);

struct Allocation {
  std::shared_ptr<std::byte> memory;
  std::size_t bytes = 0;
  int device = 0;
  bool pinned = false;           ///< of the host
  std::shared_ptr<Pool> pool{};  ///< null: cudaMalloc's, or a graph's
  bool of_graph = false;
};

/// Thread-safe, by address.
void add_allocation(const Allocation& allocation);
/// The allocation that holds `address`.
std::optional<Allocation> find_allocation(const void* address);
/// Takes the allocation that begins at `address` out.
std::optional<Allocation> remove_allocation(const void* address);

/// Overwrites memory of a GPU that goes back, and keeps it for a while.
void retire(const Allocation& allocation);
/// A GPU's bytes: those that pools and cudaMalloc hold, and its size (TESSERA_EMULATED_MEMORY
/// bytes, 4 GiB).
std::size_t device_memory_size();
std::size_t device_memory_held(int device);
/// Counts bytes that a GPU holds; false where it has no room.
bool hold_device_memory(int device, std::size_t bytes);
void release_device_memory(int device, std::size_t bytes);

/// The host has waited for this work: memory that it freed goes to any stream, and pools give back
/// what is above their release threshold.
void host_has_seen(const Order& order);

}  // namespace tessera::emulated
