#include "tessera/tensor/kernels/channel_norm.h"

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/index_dims.h"
#include "tessera/tensor/kernels/cuda/reductions/channel_elements.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

using cuda::ChannelComputed;
using cuda::ChannelPack;

// ---- the computation of an element, and the values of its channel -------------------------------

template <class C>
struct Forward {
  static constexpr bool kTakesSlope = false;
  struct Channel {
    C mean, rstd, weight, bias;
  };

  __device__ Channel channel(std::int64_t c) const {
    return {mean[c], rstd[c], weight != nullptr ? weight[c] : C(1),
            bias != nullptr ? bias[c] : C(0)};
  }
  __device__ static C apply(const Channel& c, C x, C) {
    return scalar::fma((x - c.mean) * c.rstd, c.weight, c.bias);
  }

  const C *mean, *rstd, *weight, *bias;
};

template <class C>
struct Backward {
  static constexpr bool kTakesSlope = true;
  struct Channel {
    C mean, rstd, scale, mean_dy, mean_dy_normal;
  };

  __device__ Channel channel(std::int64_t c) const {
    const C r = rstd[c];
    Channel out{mean[c], r, weight != nullptr ? r * weight[c] : r, C(0), C(0)};
    if (sum_dy == nullptr) return out;
    out.mean_dy = static_cast<C>(sum_dy[c] / *count);
    out.mean_dy_normal = static_cast<C>(sum_dy_normal[c] / *count);
    return out;
  }
  __device__ static C apply(const Channel& c, C x, C dy) {
    const C normal = (x - c.mean) * c.rstd;
    return scalar::fma(-normal, c.mean_dy_normal, dy - c.mean_dy) * c.scale;
  }

  const C *mean, *rstd, *weight, *sum_dy, *sum_dy_normal;
  const double* count;
};

// Contiguous operands; dy only for the derivative.
struct Operands {
  const void* x;
  const void* dy;
  void* y;
  std::int64_t channels;
  std::int64_t rows;  // see ChannelShape
};

template <class Op, class T, int K>
__device__ ChannelPack<T, K> applied(const typename Op::Channel& channel,
                                     const ChannelPack<T, K>& x, const ChannelPack<T, K>& dy) {
  using C = ChannelComputed<T>;
  ChannelPack<T, K> y;
#pragma unroll
  for (int i = 0; i < K; ++i) {
    y.values[i] = convert_element<T>(
        Op::apply(channel, convert_element<C>(x.values[i]), convert_element<C>(dy.values[i])));
  }
  return y;
}

// ---- adjacent elements of one channel: one group of threads per row -----------------------------

constexpr int kEach = 2;  // packs of a row that a thread has in flight

template <class T, int K, class Op>
__global__ void __launch_bounds__(cuda::kThreads)
    rows_kernel(const __grid_constant__ Operands a, const __grid_constant__ Op op,
                std::int64_t units, const cuda::RowGroups groups,
                const cuda::Divisor<std::uint64_t> by_channels) {
  using Unit = ChannelPack<T, K>;
  const int lane = static_cast<int>(threadIdx.x) & (groups.lanes() - 1);
  const auto body = [&](std::int64_t task) {
    const std::int64_t row = groups.slices == 1 ? task : task / groups.slices;
    const std::int64_t sample =
        static_cast<std::int64_t>(cuda::quotient(static_cast<std::uint64_t>(row), by_channels));
    const std::int64_t first = (task - row * groups.slices) * kEach * groups.lanes() + lane;
    const Unit* x = static_cast<const Unit*>(a.x) + row * units;
    const Unit* dy = static_cast<const Unit*>(a.dy) + row * units;
    Unit xs[kEach] = {}, slopes[kEach] = {};
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const std::int64_t unit = first + k * groups.lanes();
      if (unit < units) xs[k] = x[unit];
      if (Op::kTakesSlope && unit < units) slopes[k] = dy[unit];
    }
    const typename Op::Channel channel = op.channel(row - sample * a.channels);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const std::int64_t unit = first + k * groups.lanes();
      if (unit < units)
        static_cast<Unit*>(a.y)[row * units + unit] = applied<Op>(channel, xs[k], slopes[k]);
    }
  };
  cuda::share(cuda::thread_index() >> groups.lanes_log2, cuda::thread_count() >> groups.lanes_log2,
              a.rows * groups.slices, body);
}

// ---- adjacent elements of different channels: one thread per channel ----------------------------

constexpr int kColumns = cuda::kThreads / 8;  // per block, with 8 rows at a time

template <class T, class Op>
__global__ void __launch_bounds__(cuda::kThreads, 4)
    columns_kernel(const __grid_constant__ Operands a, const __grid_constant__ Op op) {
  using Unit = ChannelPack<T, 1>;
  const std::int64_t c = blockIdx.x * std::int64_t{kColumns} + threadIdx.x % kColumns;
  if (c >= a.channels) return;
  const typename Op::Channel channel = op.channel(c);
  constexpr int kRows = cuda::kThreads / kColumns;
  const std::int64_t first = blockIdx.y * std::int64_t{kRows} + threadIdx.x / kColumns;
#pragma unroll 4
  for (std::int64_t row = first; row < a.rows; row += std::int64_t{gridDim.y} * kRows) {
    const std::int64_t at = row * a.channels + c;
    const Unit x = static_cast<const Unit*>(a.x)[at];
    const Unit dy = Op::kTakesSlope ? static_cast<const Unit*>(a.dy)[at] : Unit{};
    static_cast<Unit*>(a.y)[at] = applied<Op>(channel, x, dy);
  }
}

// ---- from arguments to launches -----------------------------------------------------------------

// About 4 rows per thread, and at most kMostBlocks blocks along the rows.
cuda::Grid columns_grid(const ChannelShape& shape) {
  const std::int64_t columns = (shape.channels + kColumns - 1) / kColumns;
  const std::int64_t rows = std::clamp<std::int64_t>(shape.rows() / 32, 1, cuda::kMostBlocks);
  return {.blocks = dim3(static_cast<unsigned>(columns), static_cast<unsigned>(rows)),
          .threads = cuda::kThreads};
}

// MakeOp: make.template operator()<C>() returns the functor.
template <class MakeOp, class... Views>
void apply(const char* name, CudaStream stream, const ChannelShape& shape, const Operands& a,
           const MakeOp& make, const ConstView& x, const Views&... others) {
  if (shape.count() * shape.channels == 0) return;
  const auto body = [&]<class T, int K>() {
    const auto op = make.template operator()<ChannelComputed<T>>();
    using Op = std::remove_const_t<decltype(op)>;
    if (shape.spatial == 1)
      return cuda::start(name, columns_kernel<T, Op>, columns_grid(shape), stream, a, op);
    const std::int64_t units = shape.spatial / K;
    const cuda::RowGroups groups = cuda::row_groups(units, kEach, cuda::kThreads);
    cuda::start(name, rows_kernel<T, K, Op>,
                cuda::grid_for(a.rows * groups.slices * groups.lanes()), stream, a, op, units,
                groups, cuda::make_divisor(static_cast<std::uint64_t>(shape.channels)));
  };
  cuda::with_channel_elements(x.dtype, shape.row_length(), body, x, others...);
}

// The computation of ChannelFinishKernel for one channel, as on the CPU.
struct Finish {
  const void* mean;
  const void* m2;
  const double* count;
  void* rstd;
  DType dtype;
  void* running_mean;
  DType running_mean_dtype;
  void* running_var;
  DType running_var_dtype;
  double momentum;
  double eps;

  __device__ void update(void* running, DType of, std::int64_t c, double value) const {
    const double old = cuda::load_element<double>(running, of, c);
    cuda::store_element<double>(running, of, c, (1 - momentum) * old + momentum * value);
  }
  __device__ void finish(std::int64_t c) const {
    const double n = count != nullptr ? *count : 1;
    const double squares = cuda::load_element<double>(m2, dtype, c);
    const double variance = n > 0 ? squares / n : 0;
    cuda::store_element<double>(rstd, dtype, c, 1 / ::sqrt(variance + eps));
    if (running_mean != nullptr)
      update(running_mean, running_mean_dtype, c, cuda::load_element<double>(mean, dtype, c));
    if (running_var != nullptr && n >= 2)
      update(running_var, running_var_dtype, c, squares / (n - 1));
  }
};

__global__ void finish_kernel(const __grid_constant__ Finish work, std::int64_t channels) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), channels,
              [&](std::int64_t c) { work.finish(c); });
}

}  // namespace

void ChannelFinishKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const std::int64_t channels = a.m2.shape[0];
  if (channels == 0) return;
  const Finish work{.mean = a.mean.data,
                    .m2 = a.m2.data,
                    .count = a.count.as<double>(),
                    .rstd = a.rstd.data,
                    .dtype = a.m2.dtype,
                    .running_mean = a.running_mean.data,
                    .running_mean_dtype = a.running_mean.dtype,
                    .running_var = a.running_var.data,
                    .running_var_dtype = a.running_var.dtype,
                    .momentum = a.momentum,
                    .eps = a.eps};
  cuda::start(kName, finish_kernel, cuda::grid_for(channels), stream, work, channels);
}

void ChannelNormKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const Operands operands{.x = a.x.data,
                          .dy = nullptr,
                          .y = a.y.data,
                          .channels = a.shape.channels,
                          .rows = a.shape.rows()};
  const auto make = [&]<class C>() {
    return Forward<C>{.mean = a.mean.as<C>(),
                      .rstd = a.rstd.as<C>(),
                      .weight = a.weight.as<C>(),
                      .bias = a.bias.as<C>()};
  };
  apply(kName, stream, a.shape, operands, make, a.x, a.y);
}

void ChannelNormBackwardKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const Operands operands{.x = a.x.data,
                          .dy = a.dy.data,
                          .y = a.dx.data,
                          .channels = a.shape.channels,
                          .rows = a.shape.rows()};
  const auto make = [&]<class C>() {
    return Backward<C>{.mean = a.mean.as<C>(),
                       .rstd = a.rstd.as<C>(),
                       .weight = a.weight.as<C>(),
                       .sum_dy = a.sum_dy.as<C>(),
                       .sum_dy_normal = a.sum_dy_normal.as<C>(),
                       .count = a.count.as<double>()};
  };
  apply(kName, stream, a.shape, operands, make, a.x, a.dy, a.dx);
}

}  // namespace tessera
