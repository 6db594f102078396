// The summing kernels of channel_norm.h: first the chunks of each channel, then their totals.

#include "tessera/tensor/cuda/block.h"
#include "tessera/tensor/kernels/channel_norm.h"
#include "tessera/tensor/kernels/cuda/reductions/channel_elements.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/plans/chunks.h"

namespace tessera {
namespace {

using cuda::ChannelComputed;
using cuda::ChannelPack;

struct Pair {
  double first, second;
};

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// The parameters of both operations' kernels.
struct Work {
  const void* x;
  const void* dy;  // null: statistics
  const void* mean;
  const void* rstd;
  std::int64_t channels;
  std::int64_t spatial;
  std::int64_t count;                      // elements of a channel
  std::int64_t length;                     // of a chunk
  std::int64_t chunks;                     // of a channel
  cuda::Divisor<std::uint64_t> row_units;  // of one channel's row of a sample
  Pair* partial;                           // [channels, chunks]
};

// The mean of n numbers and the squared differences from it, from sums of x - guess.
__device__ Pair mean_and_m2(double guess, double rest, double squares, double n) {
  return {guess + rest / n, squares - rest * rest / n};
}

// Statistics: first a guess of the mean, then the differences from it, so that nothing cancels if
// the mean is large.
template <class C>
struct Moments {
  C guess = 0, rest = 0, squares = 0;

  __device__ void add(C x, C, C, C) {
    const C d = x - guess;
    rest += d;
    squares = scalar::fma(d, d, squares);
  }
};

// The derivative: dy, and dy times the normalised x.
template <class C>
struct Slopes {
  C sum = 0, along = 0;

  __device__ void add(C x, C dy, C mean, C rstd) {
    sum += dy;
    along = scalar::fma(dy, (x - mean) * rstd, along);
  }
};

// ---- adjacent elements of one channel -----------------------------------------------------------

// The units of K elements of a chunk, as distributed over threads.
template <class T, int K>
struct Chunk {
  using C = ChannelComputed<T>;

  __device__ Chunk(const Work& w)
      : work(w), chunk(blockIdx.x / w.channels), channel(blockIdx.x - chunk * w.channels) {
    begin = chunk * w.length;
    end = begin + w.length < w.count ? begin + w.length : w.count;
  }
  __device__ std::int64_t unit(int step) const {
    return begin / K + step * std::int64_t{cuda::kThreads} + threadIdx.x;
  }
  __device__ bool has(std::int64_t unit) const { return unit < end / K; }
  __device__ ChannelPack<T, K> load(const void* data, std::int64_t unit) const {
    const auto sample =
        static_cast<std::int64_t>(cuda::quotient(static_cast<std::uint64_t>(unit), work.row_units));
    const std::int64_t row = sample * work.channels + channel,
                       in_row = unit - sample * static_cast<std::int64_t>(work.row_units.value);
    return static_cast<const ChannelPack<T, K>*>(
        data)[row * static_cast<std::int64_t>(work.row_units.value) + in_row];
  }
  __device__ void store(const Pair& sums) const {
    if (threadIdx.x == 0) work.partial[channel * work.chunks + chunk] = sums;
  }

  const Work& work;
  std::int64_t chunk, channel, begin, end;
};

template <class T, int K>
__global__ void __launch_bounds__(cuda::kThreads)
    moments_kernel(const __grid_constant__ Work work) {
  using C = ChannelComputed<T>;
  const Chunk<T, K> chunk(work);
  const auto add_to = [&](Moments<C>& moments, const ChannelPack<T, K>& pack) {
#pragma unroll
    for (int i = 0; i < K; ++i) moments.add(convert_element<C>(pack.values[i]), 0, 0, 0);
  };
  // The first pack gives the guess, and stays in registers.
  ChannelPack<T, K> first{};
  Moments<C> guessed;
  const bool has_first = chunk.has(chunk.unit(0));
  if (has_first) add_to(guessed, first = chunk.load(work.x, chunk.unit(0)));
  const std::int64_t length = chunk.end - chunk.begin,
                     in_step = length < cuda::kThreads * K ? length : cuda::kThreads * K;
  Moments<C> moments;
  moments.guess = cuda::block_fold(guessed.rest, C(0), Sum()) / static_cast<C>(in_step);
  if (has_first) add_to(moments, first);
  for (int step = 1; chunk.has(chunk.unit(step)); ++step)
    add_to(moments, chunk.load(work.x, chunk.unit(step)));
  const C rest = cuda::block_fold(moments.rest, C(0), Sum());
  const C squares = cuda::block_fold(moments.squares, C(0), Sum());
  chunk.store(mean_and_m2(moments.guess, rest, squares, static_cast<double>(length)));
}

template <class T, int K>
__global__ void __launch_bounds__(cuda::kThreads) slopes_kernel(const __grid_constant__ Work work) {
  using C = ChannelComputed<T>;
  const Chunk<T, K> chunk(work);
  const C mean = static_cast<const C*>(work.mean)[chunk.channel],
          rstd = static_cast<const C*>(work.rstd)[chunk.channel];
  Slopes<C> slopes;
  for (int step = 0; chunk.has(chunk.unit(step)); ++step) {
    const auto x = chunk.load(work.x, chunk.unit(step)), dy = chunk.load(work.dy, chunk.unit(step));
#pragma unroll
    for (int i = 0; i < K; ++i)
      slopes.add(convert_element<C>(x.values[i]), convert_element<C>(dy.values[i]), mean, rstd);
  }
  const C sum = cuda::block_fold(slopes.sum, C(0), Sum());
  const C along = cuda::block_fold(slopes.along, C(0), Sum());
  chunk.store({sum, along});
}

// ---- adjacent elements of different channels ----------------------------------------------------

constexpr int kWarps = cuda::kThreads / cuda::kWarpSize;
constexpr int kRowsOfThread = static_cast<int>(ChannelChunks::kSamples) / kWarps;

// The sum of `value` over the warps, where each lane is a channel; every warp gets it.
template <class C>
__device__ C column_sum(C value) {
  __shared__ C values[kWarps][cuda::kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize,
            warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  __syncthreads();  // an earlier call may still be reading them
  values[warp][lane] = value;
  __syncthreads();
  C sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += values[w][lane];
  return sum;
}

// A block has kSamples samples of kChannels channels; a thread has one channel and every kWarps-th
// sample.
template <class T>
__global__ void __launch_bounds__(cuda::kThreads)
    columns_kernel(const __grid_constant__ Work work) {
  using C = ChannelComputed<T>;
  const std::int64_t tiles =
                         (work.channels + ChannelChunks::kChannels - 1) / ChannelChunks::kChannels,
                     chunk = blockIdx.x / tiles;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize,
            warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const std::int64_t channel = (blockIdx.x - chunk * tiles) * ChannelChunks::kChannels + lane,
                     begin = chunk * ChannelChunks::kSamples, rest_of = work.count - begin,
                     length = rest_of < ChannelChunks::kSamples ? rest_of : ChannelChunks::kSamples;
  const bool inside = channel < work.channels;
  const auto has = [&](int k) { return inside && warp + k * kWarps < length; };
  const auto load = [&](const void* data, int k) {
    const std::int64_t row = begin + warp + k * kWarps;
    return convert_element<C>(static_cast<const T*>(data)[row * work.channels + channel]);
  };
  C x[kRowsOfThread];
#pragma unroll
  for (int k = 0; k < kRowsOfThread; ++k) x[k] = has(k) ? load(work.x, k) : C(0);
  Pair sums;
  if (work.dy == nullptr) {
    Moments<C> moments;
    C all = 0;
#pragma unroll
    for (int k = 0; k < kRowsOfThread; ++k) all += x[k];
    moments.guess = column_sum(all) / static_cast<C>(length);
#pragma unroll
    for (int k = 0; k < kRowsOfThread; ++k) {
      if (has(k)) moments.add(x[k], 0, 0, 0);
    }
    const C rest = column_sum(moments.rest), squares = column_sum(moments.squares);
    sums = mean_and_m2(moments.guess, rest, squares, static_cast<double>(length));
  } else {
    Slopes<C> slopes;
    const C mean = inside ? static_cast<const C*>(work.mean)[channel] : C(0),
            rstd = inside ? static_cast<const C*>(work.rstd)[channel] : C(0);
#pragma unroll
    for (int k = 0; k < kRowsOfThread; ++k) {
      if (has(k)) slopes.add(x[k], load(work.dy, k), mean, rstd);
    }
    const C sum = column_sum(slopes.sum), along = column_sum(slopes.along);
    sums = {sum, along};
  }
  if (inside && warp == 0) work.partial[channel * work.chunks + chunk] = sums;
}

// ---- combining chunks ---------------------------------------------------------------------------

constexpr int kFinishThreads = 128;

// Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983.
struct Group {
  double n = 0, mean = 0, m2 = 0;

  __device__ void join(const Group& other) {
    if (other.n == 0) return;
    const double away = other.mean - mean, all = n + other.n;
    mean += away * (other.n / all);
    m2 += other.m2 + away * away * (n * other.n / all);
    n = all;
  }
};

// One block per channel.
template <class C>
__global__ void finish_moments_kernel(const __grid_constant__ Work work, C* mean, C* m2,
                                      double* count) {
  __shared__ double means[kFinishThreads], squares[kFinishThreads], counts[kFinishThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const std::int64_t channel = blockIdx.x;
  if (channel == 0 && thread == 0) *count = static_cast<double>(work.count);
  Group group;
  for (std::int64_t b = thread; b < work.chunks && channel < work.channels; b += kFinishThreads) {
    const Pair& pair = work.partial[channel * work.chunks + b];
    const std::int64_t rest = work.count - b * work.length;
    group.join(
        {static_cast<double>(rest < work.length ? rest : work.length), pair.first, pair.second});
  }
  for (int half = kFinishThreads / 2; half > 0; half /= 2) {
    means[thread] = group.mean;
    squares[thread] = group.m2;
    counts[thread] = group.n;
    __syncthreads();
    if (thread < half)
      group.join({counts[thread + half], means[thread + half], squares[thread + half]});
    __syncthreads();
  }
  if (thread != 0 || channel >= work.channels) return;
  mean[channel] = static_cast<C>(group.mean);
  m2[channel] = static_cast<C>(group.m2);
}

template <class C>
__global__ void finish_slopes_kernel(const __grid_constant__ Work work, C* sum_dy,
                                     C* sum_dy_normal) {
  const std::int64_t channel = blockIdx.x;
  double sum = 0, along = 0;
  for (std::int64_t b = threadIdx.x; b < work.chunks; b += kFinishThreads) {
    sum += work.partial[channel * work.chunks + b].first;
    along += work.partial[channel * work.chunks + b].second;
  }
  sum = cuda::block_fold(sum, 0.0, Sum());
  along = cuda::block_fold(along, 0.0, Sum());
  if (threadIdx.x != 0) return;
  sum_dy[channel] = static_cast<C>(sum);
  sum_dy_normal[channel] = static_cast<C>(along);
}

Work work_of(const ChannelShape& shape, const ConstView& x, Workspace scratch) {
  const ChannelChunks chunks(shape);
  return {.x = x.data,
          .dy = nullptr,
          .mean = nullptr,
          .rstd = nullptr,
          .channels = shape.channels,
          .spatial = shape.spatial,
          .count = shape.count(),
          .length = chunks.length,
          .chunks = chunks.count,
          .row_units = {},
          .partial = static_cast<Pair*>(scratch.data)};
}

// Fills work.partial.
void sum_chunks(const char* name, CudaStream stream, Work work, const ConstView& x,
                const ConstView& dy) {
  if (work.chunks * work.channels == 0) return;
  const bool slopes = work.dy != nullptr;
  const auto body = [&]<class T, int K>() {
    if (work.spatial == 1) {
      const std::int64_t tiles =
          (work.channels + ChannelChunks::kChannels - 1) / ChannelChunks::kChannels;
      return cuda::start(
          name, columns_kernel<T>,
          {.blocks = static_cast<unsigned>(work.chunks * tiles), .threads = cuda::kThreads}, stream,
          work);
    }
    work.row_units = cuda::make_divisor(static_cast<std::uint64_t>(work.spatial / K));
    cuda::start(
        name, slopes ? slopes_kernel<T, K> : moments_kernel<T, K>,
        {.blocks = static_cast<unsigned>(work.chunks * work.channels), .threads = cuda::kThreads},
        stream, work);
  };
  cuda::with_channel_elements(x.dtype, work.spatial, body, x, slopes ? dy : x);
}

}  // namespace

void ChannelStatisticsKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  const Work work = work_of(a.shape, a.x, scratch);
  sum_chunks(kName, stream, work, a.x, a.x);
  with_floating_type(a.mean.dtype, [&]<class C>() {
    const std::int64_t blocks = std::max<std::int64_t>(1, work.channels);
    cuda::start(kName, finish_moments_kernel<C>,
                {.blocks = static_cast<unsigned>(blocks), .threads = kFinishThreads}, stream, work,
                a.mean.as<C>(), a.m2.as<C>(), a.count.as<double>());
  });
}

void ChannelSumsKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  Work work = work_of(a.shape, a.x, scratch);
  if (work.channels == 0) return;
  work.dy = a.dy.data;
  work.mean = a.mean.data;
  work.rstd = a.rstd.data;
  sum_chunks(kName, stream, work, a.x, a.dy);
  with_floating_type(a.mean.dtype, [&]<class C>() {
    cuda::start(kName, finish_slopes_kernel<C>,
                {.blocks = static_cast<unsigned>(work.channels), .threads = kFinishThreads}, stream,
                work, a.sum_dy.as<C>(), a.sum_dy_normal.as<C>());
  });
}

}  // namespace tessera
