// One launch over all tensors, with a block of threads for each group of 64 blocks of 1,024
// elements, and one launch that folds: the order of kernels/reduce.h and then of the list, so the
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

// The squares of the lane's elements of a block, in order.
template <class T>
__device__ double lane_squares(const T* x, int lane, int length) {
  constexpr int kBatch = 8;
  double sum = 0;
  for (int first = lane; first < length; first += kBatch * kLanes) {
    T values[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      values[k] = T{};
      if (first + k * kLanes < length) values[k] = x[first + k * kLanes];
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const double value = convert_element<double>(values[k]);
      if (first + k * kLanes < length) sum += scalar::mul(value, value);
    }
  }
  return sum;
}

__global__ void __launch_bounds__(kGroup* kLanes)
    squares_tiles_kernel(const __grid_constant__ SquaresWork work) {
  __shared__ double blocks[kGroup];
  const int tile = static_cast<int>(blockIdx.x), tensor = tensor_of(work, tile);
  const int block = static_cast<int>(threadIdx.x) / kLanes,
            lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t begin =
      (std::int64_t{tile - work.first_tile[tensor]} * kGroup + block) * kBlock;
  const std::int64_t left = work.count[tensor] - begin;
  const int length = left >= kBlock ? kBlock : left > 0 ? static_cast<int>(left) : 0;
  double sum = 0;
  with_type(work.dtype[tensor], [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>))
      sum = lane_squares(static_cast<const T*>(work.data[tensor]) + begin, lane, length);
  });
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2)
    sum += __shfl_down_sync(cuda::kWholeWarp, sum, static_cast<unsigned>(half));
  if (lane == 0) blocks[block] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  const std::int64_t rest = work.count[tensor] - begin;
  const std::int64_t count = (rest + kBlock - 1) / kBlock;
  double total = 0;
  for (int b = 0; b < (count < kGroup ? static_cast<int>(count) : kGroup); ++b) total += blocks[b];
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

__global__ void __launch_bounds__(1024)
    squares_fold_kernel(const __grid_constant__ SquaresWork work) {
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize,
            lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize,
            warps = static_cast<int>(blockDim.x) / cuda::kWarpSize;
  for (int tensor = warp; tensor < work.tensors; tensor += warps) {
    const int first = work.first_tile[tensor], count = work.first_tile[tensor + 1] - first;
    // The tensors before have `first` tiles, so at most first / 64 + tensor groups.
    double* const groups = work.groups + first / kGroup + tensor;
    const double sum = fold_tensor(work.tiles + first, groups, count, lane);
    if (lane == 0) work.sums[tensor] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = work.continues ? *work.y : 0;
#pragma unroll 8
  for (int tensor = 0; tensor < work.tensors; ++tensor) total += work.sums[tensor];
  *work.y = total;
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
                  {.blocks = static_cast<unsigned>(tiles), .threads = kGroup * kLanes}, stream,
                  work);
    cuda::start(kName, squares_fold_kernel, {.blocks = 1, .threads = 1024}, stream, work);
  }
}

}  // namespace tessera
