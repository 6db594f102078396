#pragma once

/// Sizes of pinned memory: of the pieces through which copies from the host pass, and of tensors.

#include <cstddef>

namespace tessera::cuda {

/// A longer copy passes in pieces of this size.
inline constexpr std::size_t kLargestPinned = std::size_t{8} << 20;
inline constexpr int kPinnedClasses = 12;

/// The smallest class that holds `bytes` (at most kLargestPinned): doublings from 4 KiB.
int pinned_class(std::size_t bytes);
std::size_t pinned_class_bytes(int pinned_class);

/// What a tensor's page-locked memory of `bytes` takes: at most an eighth more, at least 4 KiB, so
/// that memory of about one size is used again.
std::size_t pinned_block_bytes(std::size_t bytes);

}  // namespace tessera::cuda
