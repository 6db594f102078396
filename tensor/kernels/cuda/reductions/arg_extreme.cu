// The choice among equal elements does not depend on the order in which threads compare: the
// results are the CPU's.
//
// Long lines are split into chunks; a second launch finds the best element of the chunks.

#include "tessera/tensor/kernels/order.h"

#include <cstdint>

#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/cuda/reductions/lines.h"

namespace tessera {
namespace {

struct ExtremeWork {
  cuda::LinePlan plan;
  const void* x = nullptr;
  DType dtype = DType::kF32;
  bool largest = true;
  void* values = nullptr;  // [chunks, lines], in the compute type, followed by indices
  std::int64_t* indices = nullptr;
  std::int64_t* y = nullptr;
};

// An element and its position; at < 0: none.
template <class C>
struct Found {
  C value;
  std::int64_t at;
};

// The better of two, independent of their order: a NaN, then the extreme, then the first position.
template <class C>
__device__ Found<C> better(const Found<C>& a, const Found<C>& b, bool largest) {
  if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  bool takes_b = b.at < a.at;
  if (a_nan != b_nan) {
    takes_b = b_nan;
  } else if (!a_nan && a.value != b.value) {
    takes_b = largest ? b.value > a.value : b.value < a.value;
  }
  return takes_b ? b : a;
}

template <class C>
__device__ Found<C> shuffle(const Found<C>& from, int distance) {
  return {__shfl_xor_sync(cuda::kWholeWarp, from.value, distance),
          __shfl_xor_sync(cuda::kWholeWarp, from.at, distance)};
}

// The best element of the threads of each line; all of them get it.
template <class C>
__device__ Found<C> best_of_line(const ExtremeWork& work, Found<C> mine) {
  __shared__ C values[cuda::kWarpSize];
  __shared__ std::int64_t places[cuda::kWarpSize];
  const int lanes = work.plan.lanes, in_warp = lanes < 32 ? lanes : 32;
  for (int distance = in_warp / 2; distance > 0; distance /= 2)
    mine = better(mine, shuffle(mine, distance), work.largest);
  if (lanes <= cuda::kWarpSize) return mine;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize,
            warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  if (lane == 0) {
    values[warp] = mine.value;
    places[warp] = mine.at;
  }
  __syncthreads();
  mine = {C(0), -1};
  if (lane < lanes / cuda::kWarpSize) mine = {values[lane], places[lane]};
  for (int distance = cuda::kWarpSize / 2; distance > 0; distance /= 2)
    mine = better(mine, shuffle(mine, distance), work.largest);
  return mine;
}

template <class C>
__global__ void __launch_bounds__(512)
    arg_extreme_kernel(const __grid_constant__ ExtremeWork work) {
  constexpr int kBatch = 4;
  const cuda::LinePlan& plan = work.plan;
  const cuda::LinePlace place(plan);
  const std::int64_t base = cuda::row_offset(plan.x_lines, place.line);
  Found<C> mine{C(0), -1};
  for (std::int64_t first = place.begin + place.lane; first < place.end;
       first += std::int64_t{kBatch} * plan.lanes) {
    C values[kBatch];
    cuda::with_stored_type<C>(work.dtype, [&]<class T>() {
      const T* x = static_cast<const T*>(work.x) + base;
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const std::int64_t i = first + std::int64_t{k} * plan.lanes;
        values[k] = C(0);
        if (i < place.end) values[k] = convert_element<C>(x[i * plan.x_step]);
      }
    });
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int64_t i = first + std::int64_t{k} * plan.lanes;
      if (i < place.end) mine = better(mine, {values[k], i}, work.largest);
    }
  }
  mine = best_of_line(work, mine);
  if (!place.leads()) return;
  if (plan.cut.chunks == 1) {
    work.y[cuda::row_offset(plan.y_lines, place.line)] = mine.at;
    return;
  }
  const std::int64_t at = place.chunk * plan.cut.lines + place.line;
  static_cast<C*>(work.values)[at] = mine.value;
  work.indices[at] = mine.at;
}

// The best element of the chunks of each line: one warp per line.
template <class C>
__global__ void arg_extreme_chunks_kernel(const __grid_constant__ ExtremeWork work) {
  const LineChunks& cut = work.plan.cut;
  const std::int64_t warp = cuda::thread_index() / cuda::kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  cuda::share(warp, cuda::thread_count() / cuda::kWarpSize, cut.lines, [&](std::int64_t line) {
    Found<C> best{C(0), -1};
#pragma unroll 4
    for (std::int64_t chunk = lane; chunk < cut.chunks; chunk += cuda::kWarpSize) {
      const std::int64_t at = chunk * cut.lines + line;
      best = better(best, {static_cast<const C*>(work.values)[at], work.indices[at]}, work.largest);
    }
    for (int distance = cuda::kWarpSize / 2; distance > 0; distance /= 2)
      best = better(best, shuffle(best, distance), work.largest);
    if (lane == 0) work.y[cuda::row_offset(work.plan.y_lines, line)] = best.at;
  });
}

}  // namespace

void ArgExtremeKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  ExtremeWork work;
  work.plan = cuda::plan_lines(a.x.shape, a.x.strides, 8);
  const LineChunks& cut = work.plan.cut;
  if (cut.lines == 0) return;
  work.plan.y_lines = cuda::make_row_walk(a.y.shape, a.y.strides, 0, a.y.shape.ndim());
  work.x = a.x.data;
  work.dtype = a.x.dtype;
  work.largest = a.largest;
  work.values = scratch.data;
  work.indices = static_cast<std::int64_t*>(scratch.data) + cut.lines * cut.chunks;
  work.y = a.y.as<std::int64_t>();
  with_compute_type(a.x.dtype, [&]<class C>() {
    cuda::start(kName, arg_extreme_kernel<C>, cuda::line_grid(work.plan), stream, work);
    if (cut.chunks == 1) return;
    cuda::start(kName, arg_extreme_chunks_kernel<C>, cuda::grid_for(cut.lines * cuda::kWarpSize),
                stream, work);
  });
}

}  // namespace tessera
