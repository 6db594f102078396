#include "tessera/distributed/nccl/copy_segments.h"

#include <algorithm>

#include "tessera/tensor/cuda/start.h"

namespace tessera::distributed {
namespace {

constexpr int kSegments = 64;  // of one launch: 3.6 KB of parameters
constexpr int kThreads = 256;
constexpr std::int64_t kUnitsPerBlock = 4 * kThreads;
constexpr std::int64_t kMostBlocks = 64;  // of one segment

struct Segments {
  CopySegment each[kSegments];
  int unit[kSegments];
};

struct alignas(16) Unit16 {
  std::uint64_t low, high;
};

template <class U>
__device__ void copy_units(const CopySegment& segment) {
  const std::int64_t of_row = segment.row_bytes / static_cast<std::int64_t>(sizeof(U));
  const std::int64_t count = of_row * segment.rows;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const std::int64_t row = i / of_row, at = i % of_row;
    reinterpret_cast<U*>(segment.to + row * segment.to_pitch)[at] =
        reinterpret_cast<const U*>(segment.from + row * segment.from_pitch)[at];
  }
}

__global__ void copy_kernel(const __grid_constant__ Segments segments) {
  const CopySegment& mine = segments.each[blockIdx.y];
  switch (segments.unit[blockIdx.y]) {
    case 16:
      return copy_units<Unit16>(mine);
    case 8:
      return copy_units<std::uint64_t>(mine);
    case 4:
      return copy_units<std::uint32_t>(mine);
    case 2:
      return copy_units<std::uint16_t>(mine);
    default:
      return copy_units<std::uint8_t>(mine);
  }
}

}  // namespace

void copy_segments(CUstream_st* stream, std::span<const CopySegment> segments) {
  Segments batch{};
  int count = 0;
  std::int64_t most = 0;  // units of one segment
  const auto launch = [&] {
    if (count == 0) return;
    const std::int64_t blocks =
        std::clamp<std::int64_t>((most + kUnitsPerBlock - 1) / kUnitsPerBlock, 1, kMostBlocks);
    cuda::start("copy_segments", copy_kernel,
                {.blocks = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(count)),
                 .threads = kThreads},
                stream, batch);
    count = 0;
    most = 0;
  };
  for (const CopySegment& segment : segments) {
    if (segment.row_bytes == 0 || segment.rows == 0) continue;
    batch.each[count] = segment;
    batch.unit[count] = copy_unit(segment);
    most = std::max(most, segment.row_bytes * segment.rows / batch.unit[count]);
    if (++count == kSegments) launch();
  }
  launch();
}

}  // namespace tessera::distributed
