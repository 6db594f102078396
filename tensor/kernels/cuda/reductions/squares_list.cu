// One launch over all tensors, with a block of threads for each group (a tile) of 64 blocks of
// 1,024 elements, one that folds the tiles of each tensor, and one that adds up the tensors: the
// order of kernels/reduce.h and then of the list, so the CPU's bits. A list that exceeds a launch
// continues in the next ones.

#include "tessera/tensor/kernels/reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tessera/tensor/kernels/cuda/reductions/rows.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

constexpr int kMostTensors = 1024;  // per launch: 22 KB of parameters
constexpr int kLanes = ReduceKernel::kLanes;
constexpr int kGroup = static_cast<int>(ReduceKernel::kGroup);
constexpr int kBlock = static_cast<int>(ReduceKernel::kBlock);
constexpr int kQuarters = kLanes / 4;  // a thread has four neighbouring lanes
constexpr int kTileThreads = kGroup * kQuarters;
constexpr int kFoldWarps = 4;

struct SquaresWork {
  const void* data[kMostTensors];
  std::int64_t count[kMostTensors];
  int first_tile[kMostTensors + 1];
  DType dtype[kMostTensors];
  int tensors = 0;
  double* tiles = nullptr;   // of each group of blocks
  double* groups = nullptr;  // of 64 tiles, and of groups; as long as needed
  double* sums = nullptr;    // of each tensor
  double* y = nullptr;
  bool continues = false;  // y holds the sum of the previous launches
};

// The tensor of a tile: the last non-empty one that begins at or before it.
__device__ inline int tensor_of(const SquaresWork& work, int tile) {
  int low = 0, high = work.tensors;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (work.first_tile[middle] <= tile ? low : high) = middle;
  }
  return low;
}

// Four neighbouring elements. Words, because separate 16-bit elements would take a register each.
template <class T>
struct alignas(sizeof(T) == 2 ? 8 : 16) Four {
  std::uint32_t words[sizeof(T)];
};

template <class T>
__device__ bool is_four_aligned(const T* x) {
  return reinterpret_cast<std::uintptr_t>(x) % alignof(Four<T>) == 0;
}

// Elements first to first + 3 of a block of `length` elements, with 0 after its end: a sum of
// squares does not change when +0 is added. No load depends on a condition, so that the compiler
// can issue those of several calls before it uses one.
template <class T>
__device__ Four<T> four_of_any(const T* x, int first, int length) {
  struct Elements {
    T values[4];
  } out;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const T value = x[first + j < length ? first + j : 0];
    out.values[j] = first + j < length ? value : T{};
  }
  return std::bit_cast<Four<T>>(out);
}

// The sums of four neighbouring lanes.
struct LaneSums {
  double of[4] = {};

  template <class T>
  __device__ void add(const Four<T>& elements) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto value = static_cast<double>(cuda::element<T>(elements, j));
      // The square of an element with at most 24 bits is exact in f64, so fma rounds as two steps.
      if constexpr (sizeof(T) == 8) {
        of[j] += scalar::mul(value, value);
      } else {
        of[j] = scalar::fma(value, value, of[j]);
      }
    }
  }
};

// The squares of a block's elements in the lanes 4 * quarter and following, in order.
template <class T>
__device__ LaneSums lane_squares(const T* x, int quarter, int length) {
  constexpr int kSteps = kBlock / kLanes, kBatch = 32 / static_cast<int>(sizeof(T));  // 128 bytes
  LaneSums sums;
  if (length == kBlock && is_four_aligned(x)) {
    const auto* fours = reinterpret_cast<const Four<T>*>(x) + quarter;
#pragma unroll 1
    for (int first = 0; first < kSteps; first += kBatch) {
      Four<T> batch[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) batch[k] = fours[(first + k) * kQuarters];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) sums.add(batch[k]);
    }
    return sums;
  }
#pragma unroll 1
  for (int first = 0; first < length; first += 4 * kLanes) {
    Four<T> batch[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) batch[k] = four_of_any(x, first + k * kLanes + 4 * quarter, length);
#pragma unroll
    for (int k = 0; k < 4; ++k) sums.add(batch[k]);
  }
  return sums;
}

// The lanes of a block folded pairwise; the thread of the first quarter has the result.
__device__ inline double fold_lanes(LaneSums sums) {
#pragma unroll
  for (unsigned distance = kQuarters / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sums.of[j] += __shfl_down_sync(cuda::kWholeWarp, sums.of[j], distance);
  }
  return (sums.of[0] + sums.of[2]) + (sums.of[1] + sums.of[3]);
}

// Four threads for each block of elements. At most 64 registers, so that four tiles are resident:
// while one begins or ends, the others keep the memory busy.
__global__ void __launch_bounds__(kTileThreads, 4)
    squares_tiles_kernel(const __grid_constant__ SquaresWork work) {
  __shared__ double blocks[kGroup];
  const int tile = static_cast<int>(blockIdx.x), tensor = tensor_of(work, tile);
  const int block = static_cast<int>(threadIdx.x) / kQuarters,
            quarter = static_cast<int>(threadIdx.x) % kQuarters;
  const std::int64_t begin =
      (std::int64_t{tile - work.first_tile[tensor]} * kGroup + block) * kBlock;
  const std::int64_t left = work.count[tensor] - begin;
  const int length = left >= kBlock ? kBlock : left > 0 ? static_cast<int>(left) : 0;
  LaneSums sums;
  with_type(work.dtype[tensor], [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>))
      sums = lane_squares(static_cast<const T*>(work.data[tensor]) + begin, quarter, length);
  });
  const double sum = fold_lanes(sums);
  if (quarter == 0) blocks[block] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
#pragma unroll 16
  for (int b = 0; b < kGroup; ++b) total += blocks[b];  // +0 for a block without elements
  work.tiles[tile] = total;
}

// The first 64 of `count` numbers, in order, 16 loaded before one is added. The loads depend on no
// condition; +0 for a missing number changes nothing.
__device__ inline double fold_group(const double* from, int count) {
  constexpr int kBatch = 16;
  double total = 0;
#pragma unroll 1
  for (int first = 0; first < kGroup && first < count; first += kBatch) {
    double batch[kBatch];
    if (count - first >= kBatch) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) batch[i] = from[first + i];
    } else {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const double value = from[first + i < count ? first + i : first];
        batch[i] = first + i < count ? value : 0.0;
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) total += batch[i];
  }
  return total;
}

// A warp folds the tiles of a tensor, 64 at a time until one is left.
__device__ inline double fold_tensor(double* from, double* to, int count, int lane) {
  if (count == 0) return 0;
  do {
    const int groups = (count + kGroup - 1) / kGroup;
    for (int g = lane; g < groups; g += cuda::kWarpSize) {
      to[g] = fold_group(from + g * kGroup, count - g * kGroup);
    }
    __syncwarp();
    double* const next = from;
    from = to;
    to = next;
    count = groups;
  } while (count > 1);
  return from[0];
}

// A warp for each tensor.
__global__ void __launch_bounds__(kFoldWarps* cuda::kWarpSize)
    squares_fold_kernel(const __grid_constant__ SquaresWork work) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize,
            lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize,
            tensor = static_cast<int>(blockIdx.x) * kFoldWarps + warp;
  if (tensor >= work.tensors) return;
  const int first = work.first_tile[tensor], count = work.first_tile[tensor + 1] - first;
  // The tensors before have `first` tiles, so at most first / 64 + tensor groups.
  double* const groups = work.groups + first / kGroup + tensor;
  const double sum = fold_tensor(work.tiles + first, groups, count, lane);
  if (lane == 0) work.sums[tensor] = sum;
}

// The sums of all tensors, in order.
__global__ void __launch_bounds__(kMostTensors)
    squares_total_kernel(const double* sums, int tensors, double* y, bool continues) {
  __shared__ double all[kMostTensors];
  const int thread = static_cast<int>(threadIdx.x);
  all[thread] = thread < tensors ? sums[thread] : 0.0;
  __syncthreads();
  if (thread != 0) return;
  double total = continues ? *y : 0;
#pragma unroll 1
  for (int first = 0; first < tensors; first += 16) {
#pragma unroll
    for (int i = 0; i < 16; ++i) total += all[first + i];
  }
  *y = total;
}

}  // namespace

void SquaresListKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  const auto all = static_cast<std::int64_t>(a.tensors.size());
  SquaresWork work;
  work.y = a.y.as<double>();
  for (std::int64_t first = 0; first == 0 || first < all; first += kMostTensors) {
    work.tensors = static_cast<int>(std::min<std::int64_t>(kMostTensors, all - first));
    work.continues = first > 0;
    std::int64_t tiles = 0;
    for (int i = 0; i < work.tensors; ++i) {
      const ConstView& tensor = a.tensors[static_cast<std::size_t>(first + i)];
      work.data[i] = tensor.data;
      work.dtype[i] = tensor.dtype;
      work.count[i] = tensor.numel();
      work.first_tile[i] = static_cast<int>(tiles);
      tiles += cuda_tiles(tensor.numel());
    }
    work.first_tile[work.tensors] = static_cast<int>(tiles);
    // The launches of a list follow each other on the stream, and share the memory.
    work.tiles = static_cast<double*>(scratch.data);
    work.sums = work.tiles + tiles;
    work.groups = work.sums + work.tensors;
    if (tiles > 0)
      cuda::start(kName, squares_tiles_kernel,
                  {.blocks = static_cast<unsigned>(tiles), .threads = kTileThreads}, stream, work);
    if (work.tensors > 0) {
      const auto blocks = static_cast<unsigned>((work.tensors + kFoldWarps - 1) / kFoldWarps);
      cuda::start(kName, squares_fold_kernel,
                  {.blocks = blocks, .threads = kFoldWarps * cuda::kWarpSize}, stream, work);
    }
    cuda::start(kName, squares_total_kernel, {.blocks = 1, .threads = kMostTensors}, stream,
                work.sums, work.tensors, work.y, work.continues);
  }
}

}  // namespace tessera
