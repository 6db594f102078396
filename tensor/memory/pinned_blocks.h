#pragma once

/// Page-locked (pinned) memory for CPU tensors, which GPUs copy from and to asynchronously. For the
/// allocator only. Thread-safe.

#include <cstddef>
#include <vector>

#include "tessera/tensor/streams/stream.h"

namespace tessera::detail {

/// The work that may still use a block: the CPU stream it was allocated for, and GPU copies.
struct PinnedUse {
  DeviceStream stream;
  std::vector<DeviceEvent> transfers;
};

/// A block that no work uses any more; null if there is no memory. Blocks are never returned to the
/// system: locking pages is slow.
void* take_pinned_block(std::size_t bytes);
/// `bytes` as allocated. The block is reused once all work in `use` has ended.
void give_back_pinned_block(void* data, std::size_t bytes, PinnedUse use) noexcept;

}  // namespace tessera::detail
