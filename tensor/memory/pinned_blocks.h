#pragma once

/// Page-locked memory of tensors on the CPU, which GPUs copy from and to while the host goes on.
/// For the allocator only. Thread-safe.

#include <cstddef>
#include <vector>

#include "tessera/tensor/streams/stream.h"

namespace tessera::detail {

/// What may still use a piece: the CPU stream that it was taken for, and copies by GPUs.
struct PinnedUse {
  Stream stream;
  std::vector<Event> transfers;
};

/// Memory that nothing uses any more; null where there is no room. It is kept for good: locking
/// pages is slow.
void* take_pinned_block(std::size_t bytes);
/// `bytes` as taken. Handed out again when all that may use it is over.
void give_back_pinned_block(void* data, std::size_t bytes, PinnedUse use) noexcept;

}  // namespace tessera::detail
