// The sum of the rows of a matrix of 16-bit elements, in two launches: sums of chunks of rows, then
// of the chunks.

#include "tessera/tensor/kernels/cuda/reductions/rows.h"
#include "tessera/tensor/kernels/reduce.h"

namespace tessera {
namespace {

using cuda::Pack;
using cuda::Words;

constexpr int kPackLanes = 32;  // threads of a block along a row, with 8 elements each
constexpr int kRowLanes = 8;    // threads of a block down the rows, with every 8th row each
constexpr int kColumns = static_cast<int>(RowSumKernel::kCudaColumns);

struct RowSumWork {
  const void* x = nullptr;
  float* partial = nullptr;  // [chunks, columns]
  std::int64_t rows = 0, columns = 0, row_stride = 0;
  std::int64_t rows_per_chunk = 0;
  int tiles = 1;  // blocks along a row
  bool packed = false;
};

template <class T>
__device__ Words load(const RowSumWork& work, std::int64_t row, std::int64_t first) {
  const T* from = static_cast<const T*>(work.x) + row * work.row_stride + first;
  if (first >= work.columns) return Words{};
  if (work.packed) return *reinterpret_cast<const Words*>(from);
  Pack<T> out;
#pragma unroll
  for (int j = 0; j < Pack<T>::kCount; ++j)
    out.values[j] = first + j < work.columns ? from[j] : T{};
  return std::bit_cast<Words>(out);
}

template <class T>
__global__ void __launch_bounds__(kPackLanes* kRowLanes)
    row_sum_chunks_kernel(const __grid_constant__ RowSumWork work) {
  constexpr int kCount = Pack<T>::kCount, kBatch = 4;
  static_assert(kPackLanes * kCount == kColumns);
  __shared__ float sums[kRowLanes][kColumns];
  const std::int64_t chunk = blockIdx.x / work.tiles, tile = blockIdx.x - chunk * work.tiles;
  const int lane = static_cast<int>(threadIdx.x) % kPackLanes,
            down = static_cast<int>(threadIdx.x) / kPackLanes;
  const std::int64_t first = (tile * kPackLanes + lane) * kCount;
  const std::int64_t begin = chunk * work.rows_per_chunk;
  const std::int64_t end =
      begin + work.rows_per_chunk < work.rows ? begin + work.rows_per_chunk : work.rows;
  float mine[kCount] = {};
  const auto add = [&](const Words& words) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) mine[j] += cuda::element<T>(words, j);
  };
  std::int64_t row = begin + down;
  for (; row + (kBatch - 1) * kRowLanes < end; row += kBatch * kRowLanes) {
    Words words[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) words[k] = load<T>(work, row + k * kRowLanes, first);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) add(words[k]);
  }
  for (; row < end; row += kRowLanes) add(load<T>(work, row, first));
#pragma unroll
  for (int j = 0; j < kCount; ++j) sums[down][lane * kCount + j] = mine[j];
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (tile * kColumns + column >= work.columns) return;
  float total = 0;
#pragma unroll
  for (int r = 0; r < kRowLanes; ++r) total += sums[r][column];
  work.partial[chunk * work.columns + tile * kColumns + column] = total;
}

constexpr int kTotalColumns = 32, kTotalLanes = 16;

// Adds the chunks of a column: each of its threads every so many-th, then the threads' in order.
__global__ void __launch_bounds__(kTotalColumns* kTotalLanes)
    row_sum_total_kernel(const float* partial, std::int64_t chunks, std::int64_t columns, float* y,
                         float beta) {
  __shared__ double sums[kTotalLanes][kTotalColumns];
  const int lane = static_cast<int>(threadIdx.x) / kTotalColumns,
            side = static_cast<int>(threadIdx.x) % kTotalColumns;
  const std::int64_t column = std::int64_t{blockIdx.x} * kTotalColumns + side;
  double mine = 0;
  if (column < columns) {
#pragma unroll 8
    for (std::int64_t chunk = lane; chunk < chunks; chunk += kTotalLanes)
      mine += static_cast<double>(partial[chunk * columns + column]);
  }
  sums[lane][side] = mine;
  __syncthreads();
  if (lane > 0 || column >= columns) return;
  double total = beta == 0 ? 0 : static_cast<double>(beta * y[column]);
#pragma unroll
  for (int l = 0; l < kTotalLanes; ++l) total += sums[l][side];
  y[column] = static_cast<float>(total);
}

RowSumWork work_of(const RowSumKernel::Args& a, Workspace scratch) {
  RowSumWork work;
  work.x = a.x.data;
  work.partial = static_cast<float*>(scratch.data);
  work.rows = a.rows();
  work.columns = a.columns();
  work.row_stride = a.x.strides[0];
  work.rows_per_chunk = (a.rows() + a.cuda_chunks() - 1) / a.cuda_chunks();
  work.tiles = static_cast<int>((a.columns() + kColumns - 1) / kColumns);
  work.packed = cuda::is_pack_aligned(a.x.data) && a.columns() % 8 == 0 &&
                (a.rows() < 2 || a.x.strides[0] % 8 == 0);
  return work;
}

}  // namespace

void RowSumKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (a.columns() == 0) return;
  const RowSumWork work = work_of(a, scratch);
  const cuda::Grid grid{.blocks = static_cast<unsigned>(a.cuda_chunks() * work.tiles),
                        .threads = kPackLanes * kRowLanes};
  if (a.x.dtype == DType::kBF16) {
    cuda::start(kName, row_sum_chunks_kernel<BFloat16>, grid, stream, work);
  } else {
    cuda::start(kName, row_sum_chunks_kernel<Float16>, grid, stream, work);
  }
  const std::int64_t blocks = (a.columns() + kTotalColumns - 1) / kTotalColumns;
  cuda::start(kName, row_sum_total_kernel,
              {.blocks = static_cast<unsigned>(blocks), .threads = kTotalColumns * kTotalLanes},
              stream, static_cast<const float*>(work.partial), a.cuda_chunks(), a.columns(),
              a.y.as<float>(), static_cast<float>(a.beta));
}

}  // namespace tessera
