// One launch over all tensors, with 256 threads for each tile, a group of 64 blocks of 1,024
// elements, and two that fold: the order of kernels/reduce.h and then of the list, so the
// CPU's bits. A list that exceeds a launch continues in the next one.

#include "tessera/tensor/kernels/reduce.h"

#include <algorithm>
#include <cstdint>

#include "tessera/tensor/kernels/cuda/reductions/rows.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

constexpr int kMostTensors = 1024;  // per launch: 22 KB of parameters
constexpr int kLanes = ReduceKernel::kLanes;
constexpr int kGroup = static_cast<int>(ReduceKernel::kGroup);
constexpr int kBlock = static_cast<int>(ReduceKernel::kBlock);
constexpr int kTileThreads = 256;  // so few that several tiles share a processor

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

// Lanes of a block whose elements a thread reads 16 bytes at a time: sums of neighbouring lanes.
template <class T>
struct LaneSums {
  static constexpr int kCount = cuda::Pack<T>::kCount;  // lanes of a thread
  static constexpr int kThreads = kLanes / kCount;      // threads of a block of elements
  static constexpr int kBatch = 4;                      // packs in flight

  double sums[kCount] = {};

  __device__ void add(const T& value, int lane) {
    const double wide = convert_element<double>(value);
    sums[lane] += scalar::mul(wide, wide);
  }
  // The elements of this thread's lanes, in order; the block begins at `x`.
  __device__ void add_block(const T* x, int first, int length) {
    const bool packed = reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
    int row = 0;
    if (packed) {
      for (; (row + kBatch) * kLanes <= length; row += kBatch) {
        cuda::Pack<T> packs[kBatch];
#pragma unroll
        for (int k = 0; k < kBatch; ++k)
          packs[k] = cuda::load_pack(x + (row + k) * kLanes + first, 0);
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
#pragma unroll
          for (int j = 0; j < kCount; ++j) add(packs[k].values[j], j);
        }
      }
    }
    for (; row * kLanes < length; ++row) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        const int at = row * kLanes + first + j;
        if (at < length) add(x[at], j);
      }
    }
  }
  // The sum of the block's lanes in halves: lane l takes lane l + 8, then l + 4, ... The first
  // thread of the block gets it; all threads of the warp must call it.
  __device__ double total() {
#pragma unroll
    for (int half = kThreads / 2; half > 0; half /= 2) {
#pragma unroll
      for (int j = 0; j < kCount; ++j)
        sums[j] += __shfl_down_sync(cuda::kWholeWarp, sums[j], static_cast<unsigned>(half));
    }
#pragma unroll
    for (int half = kCount / 2; half > 0; half /= 2) {
#pragma unroll
      for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    }
    return sums[0];
  }
};

// The sums of the squares of the blocks of a tile.
template <class T>
__device__ void sum_blocks(const T* x, std::int64_t count, double (&blocks)[kGroup]) {
  using Sums = LaneSums<T>;
  constexpr int kAtOnce = kTileThreads / Sums::kThreads;  // blocks
  const int thread = static_cast<int>(threadIdx.x) % Sums::kThreads;
  for (int block = static_cast<int>(threadIdx.x) / Sums::kThreads; block < kGroup;
       block += kAtOnce) {
    const std::int64_t begin = std::int64_t{block} * kBlock, left = count - begin;
    const int length = left >= kBlock ? kBlock : left > 0 ? static_cast<int>(left) : 0;
    Sums sums;
    sums.add_block(x + begin, thread * Sums::kCount, length);
    const double total = sums.total();
    if (thread == 0) blocks[block] = total;
  }
}

__global__ void __launch_bounds__(kTileThreads)
    squares_tiles_kernel(const __grid_constant__ SquaresWork work) {
  __shared__ double blocks[kGroup];
  const int tile = static_cast<int>(blockIdx.x), tensor = tensor_of(work, tile);
  const std::int64_t begin = std::int64_t{tile - work.first_tile[tensor]} * kGroup * kBlock;
  with_type(work.dtype[tensor], [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>))
      sum_blocks(static_cast<const T*>(work.data[tensor]) + begin, work.count[tensor] - begin,
                 blocks);
  });
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;  // blocks after the tensor's end are 0
#pragma unroll
  for (int b = 0; b < kGroup; ++b) total += blocks[b];
  work.tiles[tile] = total;
}

// A warp folds the tiles of a tensor, 64 at a time until one is left.
__device__ inline double fold_tensor(double* from, double* to, int count, int lane) {
  if (count == 0) return 0;
  do {
    const int groups = (count + kGroup - 1) / kGroup;
    for (int g = lane; g < groups; g += cuda::kWarpSize) {
      const int last = (g + 1) * kGroup < count ? (g + 1) * kGroup : count;
      double total = 0;
#pragma unroll 8
      for (int i = g * kGroup; i < last; ++i) total += from[i];
      to[g] = total;
    }
    __syncwarp();
    double* const next = from;
    from = to;
    to = next;
    count = groups;
  } while (count > 1);
  return from[0];
}

constexpr int kFoldThreads = 256;
constexpr int kFoldWarps = kFoldThreads / cuda::kWarpSize;  // tensors of a block

__global__ void __launch_bounds__(kFoldThreads)
    squares_tensors_kernel(const __grid_constant__ SquaresWork work) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize,
            lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const int tensor = static_cast<int>(blockIdx.x) * kFoldWarps + warp;
  if (tensor >= work.tensors) return;
  const int first = work.first_tile[tensor], count = work.first_tile[tensor + 1] - first;
  // The tensors before have `first` tiles, so at most first / 64 + tensor groups.
  double* const groups = work.groups + first / kGroup + tensor;
  const double sum = fold_tensor(work.tiles + first, groups, count, lane);
  if (lane == 0) work.sums[tensor] = sum;
}

// Adds the tensors' sums in order: all are read before the first is added.
__global__ void __launch_bounds__(kFoldThreads)
    squares_total_kernel(const double* sums, int tensors, double* y, bool continues) {
  __shared__ double all[kMostTensors];
  for (int tensor = static_cast<int>(threadIdx.x); tensor < tensors; tensor += kFoldThreads)
    all[tensor] = sums[tensor];
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = continues ? *y : 0;
#pragma unroll 8
  for (int tensor = 0; tensor < tensors; ++tensor) total += all[tensor];
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
    if (work.tensors > 0)
      cuda::start(kName, squares_tensors_kernel,
                  {.blocks = static_cast<unsigned>((work.tensors + kFoldWarps - 1) / kFoldWarps),
                   .threads = kFoldThreads},
                  stream, work);
    cuda::start(kName, squares_total_kernel, {.blocks = 1, .threads = kFoldThreads}, stream,
                static_cast<const double*>(work.sums), work.tensors, work.y, work.continues);
  }
}

}  // namespace tessera
