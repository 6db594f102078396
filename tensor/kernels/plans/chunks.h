#pragma once

/// How a GPU splits long lines and channels into chunks. Pure functions of shapes and strides.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/channel_norm.h"
#include "tessera/tensor/shape.h"

namespace tessera {

/// How a GPU splits lines along the last dim into chunks. Pure functions of shapes and strides.
struct LineChunks {
  std::int64_t lines = 0;
  std::int64_t length = 0;  ///< of a line
  std::int64_t chunk = 1;   ///< elements of a chunk; the last of a line may have fewer
  std::int64_t chunks = 1;  ///< chunks of a line
  /// Lines are adjacent in memory, the elements of a line are not: one thread takes a chunk.
  /// Otherwise many threads take one.
  bool side_by_side = false;
};

/// x has at least one dim.
inline LineChunks line_chunks(const Shape& shape, const Shape& strides) {
  LineChunks out;
  const int last = shape.ndim() - 1;
  out.length = shape[last];
  out.lines = 1;
  for (int d = 0; d < last; ++d) out.lines *= shape[d];
  int inner = last - 1;
  while (inner >= 0 && shape[inner] == 1) --inner;
  out.side_by_side = inner >= 0 && strides[inner] == 1 && strides[last] != 1 && out.length > 1;
  // Enough chunks to keep a GPU busy, none shorter than 1,024, and few per line.
  const std::int64_t parts = out.side_by_side ? 131072 : 2048;
  const std::int64_t all = out.lines * out.length;
  const std::int64_t wanted =
      std::max({(all + parts - 1) / parts, (out.length + 2047) / 2048, std::int64_t{1024}});
  out.chunk = std::max<std::int64_t>(1, std::min(out.length, wanted));
  out.chunks = std::max<std::int64_t>(1, (out.length + out.chunk - 1) / out.chunk);
  return out;
}

/// How a GPU splits the elements of a channel into chunks: one block sums each chunk, and the sums
/// of the chunks are combined afterwards. Depends on shapes alone.
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
