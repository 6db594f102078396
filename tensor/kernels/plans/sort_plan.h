#pragma once

/// How a GPU sorts lines, and the scratch for it.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/order.h"

namespace tessera {

/// How a GPU sorts lines of records by key, and the scratch for it: by 8-bit digits from the lowest
/// on, each in a stable pass.
///
/// A line is split into tiles, one for each block. A pass counts the digits of every tile, sums the
/// counts to find where each tile's records of a digit begin, and moves the records there.
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

/// How a GPU sorts lines, from shapes and the dtype alone: short lines within blocks, long ones by
/// radix sort, a limited number at a time so that scratch is bounded.
struct ArgsortPlan {
  /// Elements that a block sorts, of one or several lines.
  static constexpr std::int64_t kBlockElements = 2048;
  /// Elements in one round of radix sort, unless a line has more.
  static constexpr std::int64_t kRoundElements = std::int64_t{1} << 24;

  std::int64_t lines = 0;
  std::int64_t length = 0;
  bool wide_keys = false;  ///< keys of 64 bits, else of 32
  bool in_blocks = true;

  /// The number of lines in one round, and their scratch.
  std::int64_t round_lines() const {
    return std::clamp<std::int64_t>(kRoundElements / std::max<std::int64_t>(1, length), 1,
                                    std::max<std::int64_t>(1, lines));
  }
  RadixPlan radix(std::int64_t round) const {
    return {.lines = round,
            .length = length,
            .record_bytes = wide_keys ? std::size_t{16} : std::size_t{8},
            .passes = radix_passes(wide_keys ? 64 : 32)};
  }
  RadixPlan radix() const { return radix(round_lines()); }
};

inline ArgsortPlan argsort_plan(const ArgsortKernel::Args& a) {
  return {.lines = a.lines(),
          .length = a.extent(),
          .wide_keys = a.x.dtype == DType::kF64 || a.x.dtype == DType::kI64,
          .in_blocks = a.extent() <= ArgsortPlan::kBlockElements};
}

}  // namespace tessera
