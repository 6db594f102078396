// Each block counts the elements of a chunk that are not 0; one warp turns the counts into the
// number of such elements before each chunk; each block then writes the positions of its chunk.

#include <array>
#include <cstdint>

#include "tessera/tensor/cuda/block.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

constexpr int kWarps = cuda::kThreads / cuda::kWarpSize;

struct Nonzero {
  cuda::Walk<1> walk;
  const void* x;
  DType dtype;
  std::int64_t n;
  std::int64_t chunk;
  std::int64_t chunks;
  std::int64_t* before;  // [chunks + 1]: the count of each chunk, later of all chunks before it
  std::int64_t* y;
  std::int64_t y_strides[2];
  std::int64_t rows;
  int columns;
  std::int64_t extents[kMaxDims];
  std::int64_t fill;

  __device__ bool is_set(std::int64_t i, std::int64_t end) const {
    if (i >= end) return false;
    const std::int64_t at = cuda::offset_at(walk, 0, i);
    bool set = false;
    with_type(dtype, [&]<class T>() { set = convert_element<bool>(static_cast<const T*>(x)[at]); });
    return set;
  }
  __device__ void write(std::int64_t row, std::int64_t position) const {
    for (int d = columns - 1; d >= 0; --d) {
      const std::int64_t outer = position / extents[d];
      y[row * y_strides[0] + d * y_strides[1]] = position - outer * extents[d];
      position = outer;
    }
  }
};

// body(first, end) for the chunks of this block: in step `first`, thread t has element first + t.
template <class Body>
__device__ void for_steps(const Nonzero& work, std::int64_t chunk, const Body& body) {
  const std::int64_t begin = chunk * work.chunk,
                     end = begin + work.chunk < work.n ? begin + work.chunk : work.n;
  for (std::int64_t first = begin; first < end; first += blockDim.x) body(first + threadIdx.x, end);
}

__global__ void __launch_bounds__(cuda::kThreads)
    nonzero_count_kernel(const __grid_constant__ Nonzero work) {
  int mine = 0;
  for_steps(work, blockIdx.x,
            [&](std::int64_t i, std::int64_t end) { mine += work.is_set(i, end); });
  const int all = cuda::block_fold(mine, 0, [](int a, int b) { return a + b; });
  if (threadIdx.x == 0) work.before[blockIdx.x] = all;
}

// One warp.
__global__ void nonzero_before_kernel(const __grid_constant__ Nonzero work) {
  const auto lane = static_cast<int>(threadIdx.x);
  std::int64_t sum = 0;
  for (std::int64_t first = 0; first < work.chunks; first += cuda::kWarpSize) {
    const std::int64_t at = first + lane, mine = at < work.chunks ? work.before[at] : 0;
    std::int64_t upto = mine;
    for (int distance = 1; distance < cuda::kWarpSize; distance *= 2) {
      const std::int64_t other =
          __shfl_up_sync(cuda::kWholeWarp, upto, static_cast<unsigned>(distance));
      if (lane >= distance) upto += other;
    }
    if (at < work.chunks) work.before[at] = sum + upto - mine;
    sum += __shfl_sync(cuda::kWholeWarp, upto, cuda::kWarpSize - 1);
  }
  if (lane == 0) work.before[work.chunks] = sum;
}

__global__ void __launch_bounds__(cuda::kThreads)
    nonzero_write_kernel(const __grid_constant__ Nonzero work) {
  __shared__ int warps[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize,
            warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  std::int64_t row = work.before[blockIdx.x];
  for_steps(work, blockIdx.x, [&](std::int64_t i, std::int64_t end) {
    const bool set = work.is_set(i, end);
    const unsigned lanes = __ballot_sync(cuda::kWholeWarp, set);
    if (lane == 0) warps[warp] = __popc(lanes);
    __syncthreads();
    std::int64_t own = row + __popc(lanes & ((1u << lane) - 1));
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) own += warps[w];
      row += warps[w];
    }
    if (set && own < work.rows) work.write(own, i);
    __syncthreads();  // the next step writes `warps`
  });
}

__global__ void __launch_bounds__(cuda::kThreads)
    nonzero_fill_kernel(const __grid_constant__ Nonzero work) {
  cuda::share(work.before[work.chunks] + cuda::thread_index(), cuda::thread_count(), work.rows,
              [&](std::int64_t row) {
                for (int d = 0; d < work.columns; ++d)
                  work.y[row * work.y_strides[0] + d * work.y_strides[1]] = work.fill;
              });
}

}  // namespace

void NonzeroKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (a.y.shape[0] == 0) return;
  Nonzero work = {.walk = {},
                  .x = a.x.data,
                  .dtype = a.x.dtype,
                  .n = a.x.numel(),
                  .chunk = a.chunk(),
                  .chunks = a.chunks(),
                  .before = static_cast<std::int64_t*>(scratch.data),
                  .y = a.y.as<std::int64_t>(),
                  .y_strides = {a.y.strides[0], a.y.strides[1]},
                  .rows = a.y.shape[0],
                  .columns = a.x.shape.ndim(),
                  .extents = {},
                  .fill = a.fill};
  for (int d = 0; d < work.columns; ++d) work.extents[d] = a.x.shape[d];
  if (work.n > 0) work.walk = cuda::make_walk(a.x.shape, std::array<Shape, 1>{a.x.strides});
  const cuda::Grid blocks{.blocks = static_cast<unsigned>(work.chunks), .threads = cuda::kThreads};
  if (work.chunks > 0) cuda::start(kName, nonzero_count_kernel, blocks, stream, work);
  cuda::start(kName, nonzero_before_kernel, {.blocks = 1, .threads = cuda::kWarpSize}, stream,
              work);
  if (work.chunks > 0) cuda::start(kName, nonzero_write_kernel, blocks, stream, work);
  cuda::start(kName, nonzero_fill_kernel, cuda::grid_for(work.rows), stream, work);
}

}  // namespace tessera
