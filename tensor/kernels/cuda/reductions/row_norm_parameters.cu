#include <cstdint>

#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/cuda/reductions/norm_rows.h"

namespace tessera {
namespace {

using cuda::ComputeOf;
using cuda::Pack;

constexpr int kPackLanes = 32;  // threadIdx.x of a block, with a pack each
constexpr int kRowLanes = 8;    // threadIdx.y of a block, with every 8th sample each

struct ParameterWork {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  void* partial = nullptr;  // [chunks, 2, columns]: of weight, of bias
  std::int64_t samples = 0;
  std::int64_t samples_per_chunk = 0;
  std::int64_t columns = 0;  // groups * channels
  std::int64_t groups = 1;
  std::int64_t channels = 0;
  std::int64_t spatial = 1;
  std::int64_t tiles = 1;  // blocks per row
  bool packed = false;
};

// Sums of dy * h and of dy over the samples that this thread has of its columns.
template <class T>
struct ColumnSums {
  using C = ComputeOf<T>;
  static constexpr int kCount = Pack<T>::kCount;

  C weight[kCount];
  C bias[kCount];

  __device__ void add(const ParameterWork& work, std::int64_t sample, std::int64_t first,
                      const cuda::Words& dy, const cuda::Words& x) {
    const auto* means = static_cast<const C*>(work.mean);
    const auto* rstds = static_cast<const C*>(work.rstd);
    C mean = means == nullptr || work.groups > 1 ? C(0) : means[sample];
    C rstd = work.groups > 1 ? C(0) : rstds[sample];
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (work.groups > 1 && first + j < work.columns) {
        const std::int64_t row = sample * work.groups + (first + j) / work.channels;
        mean = means == nullptr ? C(0) : means[row];
        rstd = rstds[row];
      }
      const C slope = cuda::element<T>(dy, j);
      const C normal = (cuda::element<T>(x, j) - mean) * rstd;
      weight[j] = scalar::fma(slope, normal, weight[j]);
      bias[j] += slope;
    }
  }
};

// Adds up the sums of the threads of one column, and stores the result.
template <class T>
__device__ void fold_columns(const ParameterWork& work, const ColumnSums<T>& mine,
                             std::int64_t tile, std::int64_t chunk) {
  using C = ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount, kColumns = kPackLanes * kCount;
  __shared__ C sums[2][kRowLanes][kColumns];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kPackLanes,
            row = thread / kPackLanes;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    sums[0][row][lane * kCount + j] = mine.weight[j];
    sums[1][row][lane * kCount + j] = mine.bias[j];
  }
  __syncthreads();
  for (int i = thread; i < 2 * kColumns; i += kPackLanes * kRowLanes) {
    const int which = i / kColumns, column = i % kColumns;
    if (tile * kColumns + column >= work.columns) continue;
    C total = 0;
#pragma unroll
    for (int r = 0; r < kRowLanes; ++r) total += sums[which][r][column];
    static_cast<C*>(work.partial)[(2 * chunk + which) * work.columns + tile * kColumns + column] =
        total;
  }
}

template <class T>
__device__ cuda::Words load_columns(const void* data, const ParameterWork& work,
                                    std::int64_t sample, std::int64_t first) {
  constexpr int kCount = Pack<T>::kCount;
  const T* row = static_cast<const T*>(data) + sample * work.columns;
  if (work.packed) {
    cuda::Words out{};
    if (first < work.columns) out = reinterpret_cast<const cuda::Words*>(row)[first / kCount];
    return out;
  }
  Pack<T> out;
#pragma unroll
  for (int j = 0; j < kCount; ++j) out.values[j] = first + j < work.columns ? row[first + j] : T{};
  return std::bit_cast<cuda::Words>(out);
}

// One channel per element: columns of a matrix [samples, columns].
template <class T>
__global__ void __launch_bounds__(kPackLanes* kRowLanes)
    norm_columns_kernel(const __grid_constant__ ParameterWork work) {
  constexpr int kCount = Pack<T>::kCount, kBatch = 2;
  const std::int64_t chunk = blockIdx.x / work.tiles, tile = blockIdx.x - chunk * work.tiles;
  const int lane = static_cast<int>(threadIdx.x) % kPackLanes,
            row = static_cast<int>(threadIdx.x) / kPackLanes;
  const std::int64_t first = (tile * kPackLanes + lane) * kCount;
  const std::int64_t begin = chunk * work.samples_per_chunk;
  const std::int64_t end =
      begin + work.samples_per_chunk < work.samples ? begin + work.samples_per_chunk : work.samples;
  ColumnSums<T> sums{};
  std::int64_t sample = begin + row;
  for (; sample + (kBatch - 1) * kRowLanes < end; sample += kBatch * kRowLanes) {
    cuda::Words dy[kBatch], x[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      dy[k] = load_columns<T>(work.dy, work, sample + k * kRowLanes, first);
      x[k] = load_columns<T>(work.x, work, sample + k * kRowLanes, first);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) sums.add(work, sample + k * kRowLanes, first, dy[k], x[k]);
  }
  for (; sample < end; sample += kRowLanes) {
    sums.add(work, sample, first, load_columns<T>(work.dy, work, sample, first),
             load_columns<T>(work.x, work, sample, first));
  }
  fold_columns<T>(work, sums, tile, chunk);
}

// Many elements per channel: one block per channel of a chunk.
template <class T>
__global__ void __launch_bounds__(cuda::kThreads)
    norm_channels_kernel(const __grid_constant__ ParameterWork work) {
  using C = ComputeOf<T>;
  const std::int64_t chunk = blockIdx.x / work.columns, column = blockIdx.x - chunk * work.columns;
  const std::int64_t begin = chunk * work.samples_per_chunk;
  const std::int64_t end =
      begin + work.samples_per_chunk < work.samples ? begin + work.samples_per_chunk : work.samples;
  C weight = 0, bias = 0;
  for (std::int64_t sample = begin; sample < end; ++sample) {
    const std::int64_t row = sample * work.groups + column / work.channels;
    const C mean = work.mean == nullptr ? C(0) : static_cast<const C*>(work.mean)[row];
    const C rstd = static_cast<const C*>(work.rstd)[row];
    const std::int64_t at = (sample * work.columns + column) * work.spatial;
    const T *dy = static_cast<const T*>(work.dy) + at, *x = static_cast<const T*>(work.x) + at;
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < work.spatial; i += cuda::kThreads) {
      const C slope = convert_element<C>(dy[i]);
      weight = scalar::fma(slope, (convert_element<C>(x[i]) - mean) * rstd, weight);
      bias += slope;
    }
  }
  weight = cuda::block_fold(weight, C(0), cuda::Add());
  bias = cuda::block_fold(bias, C(0), cuda::Add());
  if (threadIdx.x != 0) return;
  static_cast<C*>(work.partial)[2 * chunk * work.columns + column] = weight;
  static_cast<C*>(work.partial)[(2 * chunk + 1) * work.columns + column] = bias;
}

constexpr int kTotalColumns = 32, kTotalLanes = 16;

struct Total {
  void* data = nullptr;
  DType dtype = DType::kF32;
};

// Adds the chunks of a column: each of its threads every so many-th, then the threads' in order.
template <class C>
__global__ void __launch_bounds__(kTotalColumns* kTotalLanes)
    norm_total_kernel(const C* partial, std::int64_t chunks, std::int64_t columns, Total dweight,
                      Total dbias) {
  __shared__ double sums[kTotalLanes][kTotalColumns];
  const int lane = static_cast<int>(threadIdx.x) / kTotalColumns,
            column = static_cast<int>(threadIdx.x) % kTotalColumns;
  const std::int64_t i = std::int64_t{blockIdx.x} * kTotalColumns + column;
  double mine = 0;
  if (i < 2 * columns) {
#pragma unroll 8
    for (std::int64_t chunk = lane; chunk < chunks; chunk += kTotalLanes)
      mine += static_cast<double>(partial[2 * chunk * columns + i]);
  }
  sums[lane][column] = mine;
  __syncthreads();
  const Total& out = i < columns ? dweight : dbias;
  if (lane > 0 || i >= 2 * columns || out.data == nullptr) return;
  double total = 0;
#pragma unroll
  for (int l = 0; l < kTotalLanes; ++l) total += sums[l][column];
  cuda::store_element(out.data, out.dtype, i < columns ? i : i - columns, static_cast<C>(total));
}

ParameterWork parameter_work(const RowNormBackwardKernel::Args& a, Workspace scratch) {
  ParameterWork work;
  work.dy = a.dy.data;
  work.x = a.x.data;
  work.mean = a.mean.data;
  work.rstd = a.rstd.data;
  work.partial = scratch.data;
  work.samples = a.shape.samples;
  work.samples_per_chunk = a.cuda_samples_per_chunk();
  work.columns = a.shape.groups * a.shape.channels;
  work.groups = a.shape.groups;
  work.channels = a.shape.channels;
  work.spatial = a.shape.spatial;
  return work;
}

template <class T>
void start_sums(CudaStream stream, const RowNormBackwardKernel::Args& a, ParameterWork work) {
  constexpr int kCount = Pack<T>::kCount;
  const char* const name = RowNormBackwardKernel::kName;
  const std::int64_t chunks = a.cuda_chunks();
  if (chunks == 0) return;
  if (work.spatial != 1) {
    return cuda::start(
        name, norm_channels_kernel<T>,
        {.blocks = static_cast<unsigned>(chunks * work.columns), .threads = cuda::kThreads}, stream,
        work);
  }
  work.packed = cuda::is_pack_aligned(a.dy.data) && cuda::is_pack_aligned(a.x.data) &&
                work.columns % kCount == 0;
  work.tiles = (work.columns + kPackLanes * kCount - 1) / (kPackLanes * kCount);
  cuda::start(
      name, norm_columns_kernel<T>,
      {.blocks = static_cast<unsigned>(chunks * work.tiles), .threads = kPackLanes * kRowLanes},
      stream, work);
}

}  // namespace

void cuda::parameter_gradients(CudaStream stream, const RowNormBackwardKernel::Args& a,
                               Workspace scratch) {
  const ParameterWork work = parameter_work(a, scratch);
  if (work.columns == 0) return;
  cuda::with_row_type(a.x.dtype, [&]<class T>() { start_sums<T>(stream, a, work); });
  add_norm_chunks(stream, a, scratch);
}

void cuda::add_norm_chunks(CudaStream stream, const RowNormBackwardKernel::Args& a,
                           Workspace scratch) {
  const std::int64_t columns = a.shape.groups * a.shape.channels;
  if (columns == 0 || (!a.dweight.defined() && !a.dbias.defined())) return;
  const std::int64_t blocks = (2 * columns + kTotalColumns - 1) / kTotalColumns;
  with_floating_type(a.x.dtype, [&]<class C>() {
    cuda::start(RowNormBackwardKernel::kName, norm_total_kernel<C>,
                {.blocks = static_cast<unsigned>(blocks), .threads = kTotalColumns * kTotalLanes},
                stream, static_cast<const C*>(scratch.data), a.cuda_chunks(), columns,
                Total{a.dweight.data, a.dweight.dtype}, Total{a.dbias.data, a.dbias.dtype});
  });
}

}  // namespace tessera
