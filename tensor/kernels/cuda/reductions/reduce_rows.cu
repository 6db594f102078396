// The first launch of a reduction whose elements are adjacent in memory, or have any other layout.

#include "tessera/tensor/kernels/cuda/reductions/reduce_work.h"

namespace tessera {
namespace {

using cuda::Pack;
using cuda::ReduceWork;

constexpr int kLanes = ReduceKernel::kLanes;
constexpr int kMostUnits = 64;

// A block of elements of one result. Units after the last one have no elements.
struct Unit {
  std::int64_t output, group, block;
  bool exists;
  std::int64_t begin;
  int length;

  __device__ Unit(const ReduceWork& work, int unit) {
    const cuda::ReducePlan& plan = work.plan;
    const std::int64_t per_tile = plan.units >> plan.group_bits;
    const std::int64_t which = blockIdx.x * per_tile + (unit >> plan.group_bits);
    const std::int64_t groups = plan.totals;
    output = groups == 1 ? which : which / groups;
    group = groups == 1 ? 0 : which - output * groups;
    block = group * kMostUnits + (unit & ((1 << plan.group_bits) - 1));
    exists = output < plan.outputs && block < plan.blocks;
    begin = block * ReduceKernel::kBlock;
    const std::int64_t left = exists ? plan.count - begin : 0;
    length = static_cast<int>(left < ReduceKernel::kBlock ? left : ReduceKernel::kBlock);
  }
};

// Folds `values` of the lanes [first, first + kOwn) of a unit, whose threads are adjacent, in
// pairs: lane l takes lane l + half. The unit's first thread gets the result.
template <class F, int kOwn, class Acc>
__device__ void fold_lanes(Acc (&values)[kOwn]) {
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2) {
    if (half >= kOwn) {
#pragma unroll
      for (int j = 0; j < kOwn; ++j)
        values[j] = F::fold(values[j], __shfl_down_sync(cuda::kWholeWarp, values[j],
                                                        static_cast<unsigned>(half / kOwn)));
    } else {
#pragma unroll
      for (int j = 0; j < half; ++j) values[j] = F::fold(values[j], values[j + half]);
    }
  }
}

// Folds the lanes of all units of the block to totals of groups.
template <class C, int kOwn, class Acc>
__device__ void fold_units(const ReduceWork& work, int unit, bool leads, Acc (&lanes)[kOwn]) {
  using Total = cuda::TotalOf<C>;
  __shared__ Total shared[kMostUnits];
  Total* const units = shared;
  folds::with_combining<C>(work.combining, [&]<class F>() { fold_lanes<F>(lanes); });
  if (leads) units[unit] = static_cast<Total>(lanes[0]);
  __syncthreads();
  const int bits = work.plan.group_bits, group = static_cast<int>(threadIdx.x);
  if (group >= work.plan.units >> bits) return;
  const Unit first(work, group << bits);
  if (!first.exists) return;
  Total whole{};
  const std::int64_t left = work.plan.blocks - first.block;
  const int count = left < (1 << bits) ? static_cast<int>(left) : 1 << bits;
  folds::with_combining<C>(work.combining, [&]<class F>() {
    whole = static_cast<Total>(F::kNone);
    for (int u = 0; u < count; ++u) whole = F::fold(whole, units[(group << bits) + u]);
  });
  cuda::put_total(work, first.output, first.group, whole);
}

template <class T, class Acc>
__global__ void __launch_bounds__(256)
    reduce_packed_rows_kernel(const __grid_constant__ ReduceWork work) {
  using C = cuda::ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount, kThreads = kLanes / kCount, kBatch = 32 / kCount;
  const int unit = static_cast<int>(threadIdx.x) / kThreads,
            thread = static_cast<int>(threadIdx.x) % kThreads;
  const Unit mine(work, unit);
  const T* row = static_cast<const T*>(work.x) + cuda::row_offset(work.plan.kept, mine.output) +
                 mine.begin + thread * kCount;
  const double shift =
      mine.exists && work.finish.shift != nullptr ? work.finish.shift[mine.output] : 0;
  Acc lanes[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) lanes[j] = cuda::nothing_of<C, Acc>(work.combining);
  const int left = mine.length - thread * kCount;
  for (int first = 0; first < left; first += kBatch * kLanes) {
    cuda::Words packs[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      packs[k] = {};
      if (first + k * kLanes < left)
        packs[k] = *reinterpret_cast<const cuda::Words*>(row + first + k * kLanes);
    }
    cuda::with_terms_of<C, Acc, false>(work.op, [&]<class F>() {
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (first + k * kLanes >= left) continue;
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          const C x = cuda::element<T>(packs[k], j);
          lanes[j] = F::fold(lanes[j], static_cast<Acc>(F::term(x, shift, work.finish.numbers)));
        }
      }
    });
  }
  fold_units<C>(work, unit, thread == 0, lanes);
}

// Any dtype: one thread per lane. `kNear`: elements have one common stride, and terms are cheap;
// else one element at a time, with any layout.
template <class C, class Acc, bool kNear>
__global__ void __launch_bounds__(1024)
    reduce_any_rows_kernel(const __grid_constant__ ReduceWork work) {
  constexpr int kBatch = kNear ? 8 : 1;
  const int unit = static_cast<int>(threadIdx.x) / kLanes,
            lane = static_cast<int>(threadIdx.x) % kLanes;
  const Unit mine(work, unit);
  const cuda::RowWalk& reduced = work.plan.reduced;
  const std::int64_t base = cuda::row_offset(work.plan.kept, mine.output);
  const double shift =
      mine.exists && work.finish.shift != nullptr ? work.finish.shift[mine.output] : 0;
  Acc lanes[1] = {cuda::nothing_of<C, Acc>(work.combining)};
  for (int first = lane; first < mine.length; first += kBatch * kLanes) {
    C values[kBatch];
    const std::int64_t at = base + (kNear ? (mine.begin + first) * reduced.strides[0]
                                          : cuda::row_offset(reduced, mine.begin + first));
    cuda::with_stored_type<C>(work.dtype, [&]<class T>() {
      const T* x = static_cast<const T*>(work.x) + at;
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        values[k] = C(0);
        if (first + k * kLanes < mine.length)
          values[k] = convert_element<C>(x[k * kLanes * reduced.strides[0]]);
      }
    });
    cuda::with_terms_of<C, Acc, !kNear>(work.op, [&]<class F>() {
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (first + k * kLanes >= mine.length) continue;
        lanes[0] =
            F::fold(lanes[0], static_cast<Acc>(F::term(values[k], shift, work.finish.numbers)));
      }
    });
  }
  fold_units<C>(work, unit, lane == 0, lanes);
}

}  // namespace

void cuda::fold_rows(CudaStream stream, const ReduceWork& work) {
  const auto tiles = static_cast<unsigned>(reduce_row_tiles(work.plan));
  const char* const name = ReduceKernel::kName;
  const auto units = static_cast<unsigned>(work.plan.units);
  if (!work.plan.packed) {
    return with_accumulator(work.dtype, work.op, [&]<class C, class Acc>() {
      const bool near = work.plan.reduced.ndim <= 1 && !work.plan.heavy;
      start(name,
            near ? reduce_any_rows_kernel<C, Acc, true> : reduce_any_rows_kernel<C, Acc, false>,
            {.blocks = tiles, .threads = units * kLanes}, stream, work);
    });
  }
  with_accumulator(DType::kF32, work.op, [&]<class C, class Acc>() {
    with_type(work.dtype, [&]<class T>() {
      if constexpr (std::is_same_v<C, float> && std::is_same_v<cuda::ComputeOf<T>, C> &&
                    is_floating(dtype_of<T>)) {
        start(name, reduce_packed_rows_kernel<T, Acc>,
              {.blocks = tiles, .threads = units * kLanes / Pack<T>::kCount}, stream, work);
      }
    });
  });
}

}  // namespace tessera
