#pragma once

/// How a GPU splits the elements of a channel into chunks: one block sums each chunk, and the sums
/// of the chunks are combined afterwards. Depends on shapes alone.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/channel_norm.h"

namespace tessera {

struct ChannelChunks {
  /// If adjacent elements belong to one channel: elements of a chunk, in memory order, times 1 to
  /// 8.
  static constexpr std::int64_t kElements = 1024;
  /// If adjacent elements belong to different channels: samples of a chunk, and channels of its
  /// block.
  static constexpr std::int64_t kSamples = 128;
  static constexpr std::int64_t kChannels = 32;

  explicit ChannelChunks(const ChannelShape& shape)
      : length(shape.spatial == 1 ? kSamples : kElements * times(shape)),
        count((shape.count() + length - 1) / length) {}

  std::int64_t length;  ///< elements of a chunk; the last chunk may have fewer
  std::int64_t count;   ///< chunks of a channel

  /// Two f64 sums for each chunk, [channels, chunks].
  std::size_t bytes(const ChannelShape& shape) const {
    return static_cast<std::size_t>(2 * shape.channels * count) * sizeof(double);
  }

 private:
  // Long chunks if there are enough of them to keep a GPU busy.
  static std::int64_t times(const ChannelShape& shape) {
    constexpr std::int64_t kBlocks = 4096;
    return std::clamp<std::int64_t>(shape.count() * shape.channels / (kElements * kBlocks), 1, 8);
  }
};

}  // namespace tessera
