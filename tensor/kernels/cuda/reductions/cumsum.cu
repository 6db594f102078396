// Long lines are split into chunks: one launch sums the chunks, one computes the sum before each
// chunk, one computes the running sums. Within a chunk, each thread adds up a few adjacent
// elements, and threads are combined by a tree: in f64, as on the CPU, but in another order;
// integers are exact. If lines are adjacent in memory and not split, one thread goes along each, in
// the CPU's order.

#include "tessera/tensor/kernels/order.h"

#include <cstdint>
#include <type_traits>

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/cuda/reductions/lines.h"

namespace tessera {
namespace {

constexpr int kItems = 4;  // adjacent elements that a thread adds up

struct CumsumWork {
  cuda::LinePlan plan;
  const void* x = nullptr;
  DType x_dtype = DType::kF32;
  void* y = nullptr;
  DType y_dtype = DType::kF32;
  std::int64_t y_step = 1;
  void* sums = nullptr;  // [chunks, lines]: the sum of each chunk, later the sum of all elements
                         // before it
};

struct WrappingAdd {
  __device__ double operator()(double a, double b) const { return a + b; }
  __device__ std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
};

// Elements [first, first + kItems) of a line; 0 after the end of the chunk.
template <class C>
__device__ void load_items(const CumsumWork& work, std::int64_t base, std::int64_t first,
                           std::int64_t end, C (&values)[kItems]) {
  with_type(work.x_dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>) == std::is_same_v<C, double>) {
      const T* x = static_cast<const T*>(work.x) + base;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        values[j] = C(0);
        if (first + j < end) values[j] = convert_element<C>(x[(first + j) * work.plan.x_step]);
      }
    }
  });
}

// The sum over the threads of a chunk before the running one, and over all of them.
template <class C>
struct Scan {
  C before, whole;
};
template <class C>
__device__ Scan<C> scan(const CumsumWork& work, C mine) {
  __shared__ C warps[cuda::kWarpSize];
  const WrappingAdd add;
  const int lanes = work.plan.lanes, width = lanes < 32 ? lanes : 32;
  const int lane = static_cast<int>(threadIdx.x) & (width - 1);
  C upto = mine;
  for (int distance = 1; distance < width; distance *= 2) {
    const C other = __shfl_up_sync(cuda::kWholeWarp, upto, static_cast<unsigned>(distance), width);
    if (lane >= distance) upto = add(other, upto);
  }
  const C previous = __shfl_up_sync(cuda::kWholeWarp, upto, 1u, width);
  C before = lane == 0 ? C(0) : previous;
  C whole = __shfl_sync(cuda::kWholeWarp, upto, width - 1, width);
  if (lanes <= cuda::kWarpSize) return {before, whole};
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  __syncthreads();  // an earlier call may still be reading `warps`
  if (lane == 0) warps[warp] = whole;
  __syncthreads();
  C ahead = 0;
  whole = 0;
  for (int w = 0; w < lanes / cuda::kWarpSize; ++w) {
    if (w == warp) ahead = whole;
    whole = add(whole, warps[w]);
  }
  return {add(ahead, before), whole};
}

template <class C>
__global__ void __launch_bounds__(512)
    cumsum_chunk_sums_kernel(const __grid_constant__ CumsumWork work) {
  const cuda::LinePlan& plan = work.plan;
  const cuda::LinePlace place(plan);
  const std::int64_t base = cuda::row_offset(plan.x_lines, place.line);
  const WrappingAdd add;
  C mine = 0;
  for (std::int64_t first = place.begin + std::int64_t{place.lane} * kItems; first < place.end;
       first += std::int64_t{plan.lanes} * kItems) {
    C values[kItems];
    load_items(work, base, first, place.end, values);
#pragma unroll
    for (int j = 0; j < kItems; ++j) mine = add(mine, values[j]);
  }
  const C whole = scan(work, mine).whole;
  if (place.leads()) static_cast<C*>(work.sums)[place.chunk * plan.cut.lines + place.line] = whole;
}

// Turns the sums of chunks into the sums of all elements before them: one warp per line.
template <class C>
__global__ void cumsum_before_kernel(C* sums, std::int64_t lines, std::int64_t chunks) {
  const WrappingAdd add;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const std::int64_t warp = cuda::thread_index() / cuda::kWarpSize;
  cuda::share(warp, cuda::thread_count() / cuda::kWarpSize, lines, [&](std::int64_t line) {
    C before = 0;
    for (std::int64_t first = 0; first < chunks; first += cuda::kWarpSize) {
      const std::int64_t at = (first + lane) * lines + line;
      const C mine = first + lane < chunks ? sums[at] : C(0);
      C upto = mine;
      for (int distance = 1; distance < cuda::kWarpSize; distance *= 2) {
        const C other = __shfl_up_sync(cuda::kWholeWarp, upto, static_cast<unsigned>(distance));
        if (lane >= distance) upto = add(other, upto);
      }
      const C previous = __shfl_up_sync(cuda::kWholeWarp, upto, 1u);
      if (first + lane < chunks) sums[at] = lane == 0 ? before : add(before, previous);
      before = add(before, __shfl_sync(cuda::kWholeWarp, upto, cuda::kWarpSize - 1));
    }
  });
}

template <class C>
__global__ void __launch_bounds__(512) cumsum_kernel(const __grid_constant__ CumsumWork work) {
  const cuda::LinePlan& plan = work.plan;
  const cuda::LinePlace place(plan);
  const std::int64_t base = cuda::row_offset(plan.x_lines, place.line);
  const std::int64_t y_base = cuda::row_offset(plan.y_lines, place.line);
  const WrappingAdd add;
  C before = 0;
  if (plan.cut.chunks > 1 && place.exists)
    before = static_cast<const C*>(work.sums)[place.chunk * plan.cut.lines + place.line];
  // The same number of steps in every thread, because the scan needs all threads.
  const std::int64_t tile = std::int64_t{plan.lanes} * kItems;
  for (std::int64_t skipped = 0; skipped < plan.cut.chunk; skipped += tile) {
    const std::int64_t first = place.begin + skipped + std::int64_t{place.lane} * kItems;
    C values[kItems];
    load_items(work, base, first, place.end, values);
    if (plan.lanes == 1) {
#pragma unroll
      for (int j = 0; j < kItems; ++j) values[j] = before = add(before, values[j]);
    } else {
      C mine = values[0];
#pragma unroll
      for (int j = 1; j < kItems; ++j) mine = add(mine, values[j]);
      const Scan<C> threads = scan(work, mine);
      C sum = add(before, threads.before);
#pragma unroll
      for (int j = 0; j < kItems; ++j) values[j] = sum = add(sum, values[j]);
      before = add(before, threads.whole);
    }
    with_type(work.y_dtype, [&]<class T>() {
      T* y = static_cast<T*>(work.y) + y_base;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        if (first + j < place.end) y[(first + j) * work.y_step] = convert_element<T>(values[j]);
      }
    });
  }
}

}  // namespace

void CumsumKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (a.x.numel() == 0) return;
  const int last = a.x.shape.ndim() - 1;
  CumsumWork work;
  work.plan = cuda::plan_lines(a.x.shape, a.x.strides, 2 * kItems);
  const LineChunks& cut = work.plan.cut;
  work.plan.y_lines = cuda::make_row_walk(a.y.shape, a.y.strides, 0, last);
  work.x_dtype = a.x.dtype;
  work.y_dtype = a.y.dtype;
  work.y_step = a.y.strides[last];
  // From the last element on: the same with negative steps.
  const std::int64_t skipped = a.reverse ? cut.length - 1 : 0, sign = a.reverse ? -1 : 1;
  const auto past = [&](const auto& view, std::int64_t step) {
    const auto bytes = skipped * step * static_cast<std::int64_t>(dtype_size(view.dtype));
    return const_cast<std::byte*>(
               static_cast<const std::byte*>(static_cast<const void*>(view.data))) +
           bytes;
  };
  work.x = past(a.x, work.plan.x_step);
  work.y = past(a.y, work.y_step);
  work.plan.x_step *= sign;
  work.y_step *= sign;
  work.sums = scratch.data;
  const auto launch = [&]<class C>() {
    const cuda::Grid grid = cuda::line_grid(work.plan);
    if (cut.chunks > 1) {
      cuda::start(kName, cumsum_chunk_sums_kernel<C>, grid, stream, work);
      cuda::start(kName, cumsum_before_kernel<C>, cuda::grid_for(cut.lines * cuda::kWarpSize),
                  stream, static_cast<C*>(work.sums), cut.lines, cut.chunks);
    }
    cuda::start(kName, cumsum_kernel<C>, grid, stream, work);
  };
  if (is_floating(a.x.dtype)) return launch.operator()<double>();
  launch.operator()<std::int64_t>();
}

}  // namespace tessera
