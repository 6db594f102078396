#pragma once

/// Sizes of pinned memory: for the pieces that stage copies from the host, and for tensors.

#include <cstddef>

namespace tessera::cuda {

/// Longer copies are split into pieces of this size.
inline constexpr std::size_t kLargestPinned = std::size_t{8} << 20;
inline constexpr int kPinnedClasses = 12;

/// The smallest class that holds `bytes` (at most kLargestPinned): powers of two from 4 KiB.
int pinned_class(std::size_t bytes);
std::size_t pinned_class_bytes(int pinned_class);

/// The size of a tensor's page-locked block for `bytes`: at most an eighth larger, at least 4 KiB,
/// so that blocks of about the same size can be reused.
std::size_t pinned_block_bytes(std::size_t bytes);

}  // namespace tessera::cuda
