#include "tessera/tests/tools/emulated_gpu/kernels.h"

#include "tessera/tensor/cuda/block.h"
#include "tessera/tensor/cuda/start.h"

namespace tessera::testing {
namespace {

constexpr unsigned kThreads = 256;

__global__ void fill_kernel(float* data, int n, float value) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < static_cast<unsigned>(n);
       i += gridDim.x * blockDim.x)
    data[i] = value;
}

__global__ void scale_kernel(float* data, int n, float factor, float summand) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < static_cast<unsigned>(n);
       i += gridDim.x * blockDim.x)
    data[i] = data[i] * factor + summand;
}

__global__ void sleep_kernel(std::uint64_t nanoseconds) {
  const std::uint64_t start = cuda::nanoseconds_now();
  while (cuda::nanoseconds_now() - start < nanoseconds) __nanosleep(1000);
}

__global__ void neighbours_kernel(int* out, bool barrier) {
  __shared__ int numbers[kThreads];
  numbers[threadIdx.x] = -1;
  __syncthreads();
  numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (barrier) __syncthreads();
  out[threadIdx.x] = numbers[(threadIdx.x + 1) % kThreads];
}

__global__ void block_sum_kernel(int* out) {
  const int sum =
      cuda::block_fold(static_cast<int>(threadIdx.x), 0, [](int a, int b) { return a + b; });
  if (threadIdx.x == 0) *out = sum;
}

__global__ void hang_kernel() {
  if (threadIdx.x < kThreads / 2) __syncthreads();
}

__global__ void empty_kernel() {}

}  // namespace

void launch_fill(CUstream_st* stream, float* data, int n, float value) {
  cuda::start("fill", fill_kernel, {.blocks = 4, .threads = kThreads}, stream, data, n, value);
}

void launch_scale(CUstream_st* stream, float* data, int n, float factor, float summand) {
  cuda::start("scale", scale_kernel, {.blocks = 4, .threads = kThreads}, stream, data, n, factor,
              summand);
}

void launch_sleep(CUstream_st* stream, int microseconds) {
  cuda::start("sleep", sleep_kernel, {}, stream, static_cast<std::uint64_t>(microseconds) * 1000);
}

void launch_neighbours(CUstream_st* stream, int* out, bool barrier) {
  cuda::start("neighbours", neighbours_kernel, {.threads = kThreads}, stream, out, barrier);
}

void launch_block_sum(CUstream_st* stream, int* out) {
  cuda::start("block_sum", block_sum_kernel, {.threads = kThreads}, stream, out);
}

void launch_hang(CUstream_st* stream) {
  cuda::start("hang", hang_kernel, {.threads = kThreads}, stream);
}

void launch_with_shared(CUstream_st* stream, unsigned bytes, bool allowed) {
  const cuda::Grid grid{.threads = 32, .shared_bytes = bytes};
  if (allowed) {
    cuda::start_with_much_shared("shared", empty_kernel, grid, stream);
  } else {
    cuda::start("shared", empty_kernel, grid, stream);
  }
}

void launch_with_threads(CUstream_st* stream, unsigned threads) {
  cuda::start("threads", empty_kernel, {.threads = threads}, stream);
}

}  // namespace tessera::testing
