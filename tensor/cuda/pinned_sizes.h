#pragma once

/// Sizes of the pinned pieces through which copies from the host pass.

#include <cstddef>

namespace tessera::cuda {

/// A longer copy passes in pieces of this size.
inline constexpr std::size_t kLargestPinned = std::size_t{8} << 20;
inline constexpr int kPinnedClasses = 12;

/// The smallest class that holds `bytes` (at most kLargestPinned): doublings from 4 KiB.
int pinned_class(std::size_t bytes);
std::size_t pinned_class_bytes(int pinned_class);

}  // namespace tessera::cuda
