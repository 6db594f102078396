#pragma once

/// How a GPU sorts lines of records by key, and the scratch for it: by 8-bit digits from the lowest
/// on, each in a stable pass.
///
/// A line is split into tiles, one for each block. A pass counts the digits of every tile, sums the
/// counts to find where each tile's records of a digit begin, and moves the records there.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tessera {

struct RadixPlan {
  static constexpr int kDigits = 256;
  static constexpr int kDigitBits = 8;
  /// Threads of a block, and records that it takes at a time.
  static constexpr std::int64_t kThreads = 256;
  static constexpr std::int64_t kMostTiles = 512;  ///< tiles of a line

  std::int64_t lines = 0;
  std::int64_t length = 0;  ///< records of a line, below 2^32
  std::size_t record_bytes = 8;
  int passes = 0;

  std::int64_t chunk() const {  ///< records of a tile
    const std::int64_t steps = (length + kThreads - 1) / kThreads;
    return std::max<std::int64_t>(1, (steps + kMostTiles - 1) / kMostTiles) * kThreads;
  }
  std::int64_t tiles() const { return (length + chunk() - 1) / chunk(); }

  // Scratch: two buffers of records, counts [lines, digits, tiles] and totals [lines, digits].
  std::size_t buffer_bytes() const {
    return rounded(static_cast<std::size_t>(lines * length) * record_bytes);
  }
  std::size_t count_bytes() const {
    return rounded(static_cast<std::size_t>(lines * kDigits * tiles()) * sizeof(std::uint32_t));
  }
  std::size_t bytes() const {
    return 2 * buffer_bytes() + count_bytes() +
           rounded(static_cast<std::size_t>(lines * kDigits) * sizeof(std::uint32_t));
  }

 private:
  static std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
};

/// The number of passes for keys of this many bits.
constexpr int radix_passes(int key_bits) {
  return (key_bits + RadixPlan::kDigitBits - 1) / RadixPlan::kDigitBits;
}

}  // namespace tessera
