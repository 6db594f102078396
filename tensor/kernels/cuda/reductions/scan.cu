// Long lines are split into chunks: one launch folds the chunks, one computes the result before each
// chunk, one computes the running results. Within a chunk, each thread folds a few adjacent
// elements, and threads are combined by a tree: in f64, as on the CPU, but in another order, products
// with a wider exponent; integers and positions are exact. If lines are adjacent in memory and not split, one thread goes
// along each, in the CPU's order.

#include "tessera/tensor/kernels/scan.h"

#include <cstdint>
#include <type_traits>

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/cuda/reductions/lines.h"
#include "tessera/tensor/kernels/math/scan_steps.h"

namespace tessera {
namespace {

constexpr int kItems = 4;  // adjacent elements that a thread folds

struct ScanWork {
  cuda::LinePlan plan;
  const void* x = nullptr;
  DType x_dtype = DType::kF32;
  void* y = nullptr;
  DType y_dtype = DType::kF32;
  std::int64_t y_step = 1;
  void* states = nullptr;  // [chunks, lines]: the state of each chunk, later of all elements before
};

// Shuffles of a state: one number, or two of 8 bytes.
__device__ double shuffle_up(double from, int distance, int width) {
  return __shfl_up_sync(cuda::kWholeWarp, from, static_cast<unsigned>(distance), width);
}
__device__ std::int64_t shuffle_up(std::int64_t from, int distance, int width) {
  return __shfl_up_sync(cuda::kWholeWarp, from, static_cast<unsigned>(distance), width);
}
template <class State>
__device__ State shuffle_up(const State& from, int distance, int width) {
  const auto [first, second] = from;
  return {shuffle_up(first, distance, width), shuffle_up(second, distance, width)};
}
__device__ double shuffle_from(double from, int lane, int width) {
  return __shfl_sync(cuda::kWholeWarp, from, lane, width);
}
__device__ std::int64_t shuffle_from(std::int64_t from, int lane, int width) {
  return __shfl_sync(cuda::kWholeWarp, from, lane, width);
}
template <class State>
__device__ State shuffle_from(const State& from, int lane, int width) {
  const auto [first, second] = from;
  return {shuffle_from(first, lane, width), shuffle_from(second, lane, width)};
}

// Elements [first, first + kItems) of a line; no element after the end of the chunk.
template <class C, class Step>
__device__ void load_items(const ScanWork& work, std::int64_t base, std::int64_t first,
                           std::int64_t end, typename Step::State (&states)[kItems]) {
  with_type(work.x_dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>) == std::is_same_v<C, double>) {
      const T* x = static_cast<const T*>(work.x) + base;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        const std::int64_t at = first + j;
        states[j] = Step::none();
        if (at < end) states[j] = Step::of(convert_element<C>(x[at * work.plan.x_step]), at);
      }
    }
  });
}

// The state of the threads of a chunk before the running one, and of all of them.
template <class State>
struct Scan {
  State before, whole;
};
template <class Step, class State = typename Step::State>
__device__ Scan<State> scan(const ScanWork& work, State mine) {
  __shared__ State warps[cuda::kWarpSize];
  const int lanes = work.plan.lanes, width = lanes < 32 ? lanes : 32;
  const int lane = static_cast<int>(threadIdx.x) & (width - 1);
  State upto = mine;
  for (int distance = 1; distance < width; distance *= 2) {
    const State other = shuffle_up(upto, distance, width);
    if (lane >= distance) upto = Step::combine(other, upto);
  }
  const State previous = shuffle_up(upto, 1, width);
  State before = lane == 0 ? Step::none() : previous;
  State whole = shuffle_from(upto, width - 1, width);
  if (lanes <= cuda::kWarpSize) return {before, whole};
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  __syncthreads();  // an earlier call may still be reading `warps`
  if (lane == 0) warps[warp] = whole;
  __syncthreads();
  State ahead = Step::none();
  whole = Step::none();
  for (int w = 0; w < lanes / cuda::kWarpSize; ++w) {
    if (w == warp) ahead = whole;
    whole = Step::combine(whole, warps[w]);
  }
  return {Step::combine(ahead, before), whole};
}

template <class C, class Step>
__global__ void __launch_bounds__(512) scan_chunks_kernel(const __grid_constant__ ScanWork work) {
  using State = typename Step::State;
  const cuda::LinePlan& plan = work.plan;
  const cuda::LinePlace place(plan);
  const std::int64_t base = cuda::row_offset(plan.x_lines, place.line);
  State mine = Step::none();
  for (std::int64_t first = place.begin + std::int64_t{place.lane} * kItems; first < place.end;
       first += std::int64_t{plan.lanes} * kItems) {
    State states[kItems];
    load_items<C, Step>(work, base, first, place.end, states);
#pragma unroll
    for (int j = 0; j < kItems; ++j) mine = Step::combine(mine, states[j]);
  }
  const State whole = scan<Step>(work, mine).whole;
  if (place.leads())
    static_cast<State*>(work.states)[place.chunk * plan.cut.lines + place.line] = whole;
}

// Turns the states of chunks into the states of all elements before them: one warp per line.
template <class Step, class State = typename Step::State>
__global__ void scan_before_kernel(State* states, std::int64_t lines, std::int64_t chunks) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const std::int64_t warp = cuda::thread_index() / cuda::kWarpSize;
  cuda::share(warp, cuda::thread_count() / cuda::kWarpSize, lines, [&](std::int64_t line) {
    State before = Step::none();
    for (std::int64_t first = 0; first < chunks; first += cuda::kWarpSize) {
      const std::int64_t at = (first + lane) * lines + line;
      const State mine = first + lane < chunks ? states[at] : Step::none();
      State upto = mine;
      for (int distance = 1; distance < cuda::kWarpSize; distance *= 2) {
        const State other = shuffle_up(upto, distance, cuda::kWarpSize);
        if (lane >= distance) upto = Step::combine(other, upto);
      }
      const State previous = shuffle_up(upto, 1, cuda::kWarpSize);
      if (first + lane < chunks) states[at] = lane == 0 ? before : Step::combine(before, previous);
      before = Step::combine(before, shuffle_from(upto, cuda::kWarpSize - 1, cuda::kWarpSize));
    }
  });
}

template <class C, class Step>
__global__ void __launch_bounds__(512) scan_kernel(const __grid_constant__ ScanWork work) {
  using State = typename Step::State;
  const cuda::LinePlan& plan = work.plan;
  const cuda::LinePlace place(plan);
  const std::int64_t base = cuda::row_offset(plan.x_lines, place.line);
  const std::int64_t y_base = cuda::row_offset(plan.y_lines, place.line);
  State before = Step::none();
  if (plan.cut.chunks > 1 && place.exists)
    before = static_cast<const State*>(work.states)[place.chunk * plan.cut.lines + place.line];
  // The same number of steps in every thread, because the scan needs all threads.
  const std::int64_t tile = std::int64_t{plan.lanes} * kItems;
  for (std::int64_t skipped = 0; skipped < plan.cut.chunk; skipped += tile) {
    const std::int64_t first = place.begin + skipped + std::int64_t{place.lane} * kItems;
    State states[kItems];
    load_items<C, Step>(work, base, first, place.end, states);
    if (plan.lanes == 1) {
#pragma unroll
      for (int j = 0; j < kItems; ++j) states[j] = before = Step::combine(before, states[j]);
    } else {
      State mine = states[0];
#pragma unroll
      for (int j = 1; j < kItems; ++j) mine = Step::combine(mine, states[j]);
      const Scan<State> threads = scan<Step>(work, mine);
      State upto = Step::combine(before, threads.before);
#pragma unroll
      for (int j = 0; j < kItems; ++j) states[j] = upto = Step::combine(upto, states[j]);
      before = Step::combine(before, threads.whole);
    }
    with_type(work.y_dtype, [&]<class T>() {
      T* y = static_cast<T*>(work.y) + y_base;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        if (first + j < place.end)
          y[(first + j) * work.y_step] = convert_element<T>(Step::result(states[j]));
      }
    });
  }
}

}  // namespace

void ScanKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (a.x.numel() == 0) return;
  const int last = a.x.shape.ndim() - 1;
  ScanWork work;
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
  work.states = scratch.data;
  with_scan_step(a.x.dtype, a.op, [&]<class C, class SequentialStep>() {
    using Step = SegmentStep<SequentialStep>;
    const cuda::Grid grid = cuda::line_grid(work.plan);
    if (cut.chunks > 1) {
      cuda::start(kName, scan_chunks_kernel<C, Step>, grid, stream, work);
      cuda::start(kName, scan_before_kernel<Step>, cuda::grid_for(cut.lines * cuda::kWarpSize),
                  stream, static_cast<typename Step::State*>(work.states), cut.lines, cut.chunks);
    }
    cuda::start(kName, scan_kernel<C, Step>, grid, stream, work);
  });
}

}  // namespace tessera
