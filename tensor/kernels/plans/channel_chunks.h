#pragma once

/// How a GPU cuts the elements of a channel into chunks, each summed by one block; the sums of
/// chunks are put together after. From shapes alone.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/channel_norm.h"

namespace tessera {

struct ChannelChunks {
  /// Where neighbours are of one channel: elements of a chunk, in the order of memory, times 1
  /// to 8.
  static constexpr std::int64_t kElements = 1024;
  /// Where neighbours are of different channels: samples of a chunk, and channels of its block.
  static constexpr std::int64_t kSamples = 128;
  static constexpr std::int64_t kChannels = 32;

  explicit ChannelChunks(const ChannelShape& shape)
      : length(shape.spatial == 1 ? kSamples : kElements * times(shape)),
        count((shape.count() + length - 1) / length) {}

  std::int64_t length;  ///< elements of a channel; fewer in the last chunk
  std::int64_t count;   ///< of a channel

  /// Two f64 sums for each chunk, [channels, chunks].
  std::size_t bytes(const ChannelShape& shape) const {
    return static_cast<std::size_t>(2 * shape.channels * count) * sizeof(double);
  }

 private:
  // Long chunks where there are enough of them to fill a GPU.
  static std::int64_t times(const ChannelShape& shape) {
    constexpr std::int64_t kBlocks = 4096;
    return std::clamp<std::int64_t>(shape.count() * shape.channels / (kElements * kBlocks), 1, 8);
  }
};

}  // namespace tessera
