// The first launch of a reduction whose results are adjacent in memory, while the elements of a
// result are not: threadIdx.x counts results, threadIdx.y their lanes.

#include "tessera/tensor/kernels/cuda/reductions/reduce_work.h"

namespace tessera {
namespace {

using cuda::Pack;
using cuda::ReduceWork;

constexpr int kLanes = ReduceKernel::kLanes;

// The running thread's position: its first result, and its elements, as rows of a matrix.
struct ColumnPlace {
  int side, lane;
  std::int64_t first;  // result
  std::int64_t block;
  bool exists;
  int rows;           // of the block
  std::int64_t base;  // of the result's first element in the block

  __device__ ColumnPlace(const ReduceWork& work, std::int64_t tiles, int pack) {
    const cuda::ReducePlan& plan = work.plan;
    side = static_cast<int>(threadIdx.x) & ((1 << plan.side_bits) - 1);
    lane = static_cast<int>(threadIdx.x) >> plan.side_bits;
    block = blockIdx.x / tiles;
    const std::int64_t tile = blockIdx.x - block * tiles;
    first = ((tile << plan.side_bits) + side) * pack;
    exists = first < plan.outputs;
    const std::int64_t begin = block * ReduceKernel::kBlock, left = plan.count - begin;
    rows =
        !exists ? 0 : static_cast<int>(left < ReduceKernel::kBlock ? left : ReduceKernel::kBlock);
    base = (exists ? cuda::row_offset(plan.kept, first) : 0) + begin * plan.reduced.strides[0];
  }
};

// Folds the lanes of one result, `width` apart, in pairs.
template <class F, class Acc>
__device__ Acc fold_lanes(const Acc* sums, int width) {
  static_assert(kLanes == 16);
  Acc lanes[kLanes];
#pragma unroll
  for (int l = 0; l < kLanes; ++l) lanes[l] = sums[l * width];
#pragma unroll
  for (int l = 0; l < 8; ++l) lanes[l] = F::fold(lanes[l], lanes[l + 8]);
#pragma unroll
  for (int l = 0; l < 4; ++l) lanes[l] = F::fold(lanes[l], lanes[l + 4]);
  lanes[0] = F::fold(lanes[0], lanes[2]);
  lanes[1] = F::fold(lanes[1], lanes[3]);
  lanes[0] = F::fold(lanes[0], lanes[1]);
  return lanes[0];
}

// Folds the lanes of the block's results to totals, through shared memory.
template <class C, int kCount, class Acc>
__device__ void fold_results(const ReduceWork& work, const ColumnPlace& place,
                             const Acc (&mine)[kCount]) {
  using Total = cuda::TotalOf<C>;
  Acc* const sums = cuda::dynamic_shared<Acc>();
  const int width = kCount << work.plan.side_bits;
#pragma unroll
  for (int j = 0; j < kCount; ++j) sums[place.lane * width + place.side * kCount + j] = mine[j];
  __syncthreads();
  const std::int64_t first = place.first - place.side * kCount;
  for (int column = static_cast<int>(threadIdx.x); column < width;
       column += static_cast<int>(blockDim.x)) {
    if (first + column >= work.plan.outputs) continue;
    Acc whole{};
    folds::with_combining<C>(work.combining,
                             [&]<class F>() { whole = fold_lanes<F>(sums + column, width); });
    cuda::put_total(work, first + column, place.block, static_cast<Total>(whole));
  }
}

template <class T, class Acc>
__global__ void __launch_bounds__(512)
    reduce_packed_columns_kernel(const __grid_constant__ ReduceWork work, std::int64_t tiles) {
  using C = cuda::ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount, kBatch = 4;
  const ColumnPlace place(work, tiles, kCount);
  const std::int64_t stride = work.plan.reduced.strides[0];
  const T* x = static_cast<const T*>(work.x) + place.base;
  Acc lanes[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) lanes[j] = cuda::nothing_of<C, Acc>(work.combining);
  for (int row = place.lane; row < place.rows; row += kBatch * kLanes) {
    cuda::Words packs[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      packs[k] = {};
      if (row + k * kLanes < place.rows)
        packs[k] = *reinterpret_cast<const cuda::Words*>(x + (row + k * kLanes) * stride);
    }
    cuda::with_terms_of<C, Acc, false>(work.op, [&]<class F>() {
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (row + k * kLanes >= place.rows) continue;
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          const C value = cuda::element<T>(packs[k], j);
          lanes[j] = F::fold(lanes[j], static_cast<Acc>(F::term(value, 0, work.finish.numbers)));
        }
      }
    });
  }
  fold_results<C, kCount>(work, place, lanes);
}

template <class C, class Acc>
__global__ void __launch_bounds__(512)
    reduce_any_columns_kernel(const __grid_constant__ ReduceWork work, std::int64_t tiles) {
  constexpr int kBatch = 8;
  const ColumnPlace place(work, tiles, 1);
  const std::int64_t stride = work.plan.reduced.strides[0];
  const double shift =
      place.exists && work.finish.shift != nullptr ? work.finish.shift[place.first] : 0;
  Acc lanes[1] = {cuda::nothing_of<C, Acc>(work.combining)};
  for (int row = place.lane; row < place.rows; row += kBatch * kLanes) {
    C values[kBatch];
    cuda::with_stored_type<C>(work.dtype, [&]<class T>() {
      const T* x = static_cast<const T*>(work.x) + place.base;
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        values[k] = C(0);
        if (row + k * kLanes < place.rows)
          values[k] = convert_element<C>(x[(row + k * kLanes) * stride]);
      }
    });
    cuda::with_terms_of<C, Acc, false>(work.op, [&]<class F>() {
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (row + k * kLanes >= place.rows) continue;
        lanes[0] =
            F::fold(lanes[0], static_cast<Acc>(F::term(values[k], shift, work.finish.numbers)));
      }
    });
  }
  fold_results<C, 1>(work, place, lanes);
}

// Number of blocks of threads for one block of rows.
std::int64_t tiles_of(const ReduceWork& work, int pack) {
  const std::int64_t width = std::int64_t{pack} << work.plan.side_bits;
  return (work.plan.outputs + width - 1) / width;
}

template <class Acc>
cuda::Grid grid_of(const ReduceWork& work, int pack) {
  const unsigned threads = static_cast<unsigned>(kLanes) << work.plan.side_bits;
  return {.blocks = static_cast<unsigned>(tiles_of(work, pack) * work.plan.blocks),
          .threads = threads,
          .shared_bytes = threads * static_cast<unsigned>(pack) * sizeof(Acc)};
}

}  // namespace

void cuda::fold_columns(CudaStream stream, const ReduceWork& work) {
  const char* const name = ReduceKernel::kName;
  // A shift for each of a thread's results would take too many registers.
  if (!work.plan.packed || work.finish.shift != nullptr) {
    return with_accumulator(work.dtype, work.op, [&]<class C, class Acc>() {
      start(name, reduce_any_columns_kernel<C, Acc>, grid_of<Acc>(work, 1), stream, work,
            tiles_of(work, 1));
    });
  }
  with_accumulator(DType::kF32, work.op, [&]<class C, class Acc>() {
    with_type(work.dtype, [&]<class T>() {
      constexpr int kCount = Pack<T>::kCount;
      if constexpr (std::is_same_v<C, float> && std::is_same_v<cuda::ComputeOf<T>, C> &&
                    is_floating(dtype_of<T>)) {
        start(name, reduce_packed_columns_kernel<T, Acc>, grid_of<Acc>(work, kCount), stream, work,
              tiles_of(work, kCount));
      }
    });
  });
}

}  // namespace tessera
