#include "tessera/tensor/kernels/channel_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

Workspace behind(Workspace scratch, std::size_t bytes) {
  return {static_cast<char*>(scratch.data) + bytes, scratch.bytes - bytes};
}

// to[i] = compute(of(c), i) for the elements i of a row; `of` returns the values of an element's channel c.
template <class T, class Of, class Compute>
void compute_row(const ChannelShape& shape, std::int64_t row, T* to, const Of& of,
                 const Compute& compute) {
  if (shape.spatial == 1) {
#pragma GCC ivdep
    for (std::int64_t c = 0; c < shape.channels; ++c) to[c] = convert_element<T>(compute(of(c), c));
  } else {
    const auto channel = of(row % shape.channels).as_numbers();
#pragma GCC ivdep
    for (std::int64_t i = 0; i < shape.spatial; ++i) to[i] = cpu::stored<T>(compute(channel, i));
  }
}

// What the elements of a channel are computed with.
template <class C>
struct ForwardChannel {
  C mean, rstd, weight, bias;

  // For cpu::stored(): values that are NaN get a payload of zero.
  ForwardChannel as_numbers() const {
    return {cpu::number_as<C>(mean), cpu::number_as<C>(rstd), cpu::number_as<C>(weight),
            cpu::number_as<C>(bias)};
  }
};

// The same for the derivative.
template <class C>
struct BackwardChannel {
  C mean, rstd, scale, mean_dy, mean_dy_normal;

  BackwardChannel as_numbers() const {
    return {cpu::number_as<C>(mean), cpu::number_as<C>(rstd), cpu::number_as<C>(scale),
            cpu::number_as<C>(mean_dy), cpu::number_as<C>(mean_dy_normal)};
  }
};

}  // namespace

void ChannelFinishKernel::cpu(const Args& a, Workspace) {
  with_floating_type(a.m2.dtype, [&]<class C>() {
    const double count = a.count.defined() ? a.count.as<double>()[0] : 1;
    const auto keep = 1 - a.momentum;
    // Updates one number of a running statistic.
    const auto update = [&](const View& running, std::int64_t c, double value) {
      void* at = cpu::advance(running.data, running.dtype, c);
      double old = 0;
      cpu::load_run(running.dtype, at, 1, 1, &old);
      const double now = keep * old + a.momentum * value;
      cpu::store_run(running.dtype, at, 1, 1, &now);
    };
    for (std::int64_t c = 0; c < a.m2.shape[0]; ++c) {
      const double m2 = a.m2.as<C>()[c];
      const double variance = count > 0 ? m2 / count : 0;
      a.rstd.as<C>()[c] = static_cast<C>(1 / std::sqrt(variance + a.eps));
      if (a.running_mean.defined()) update(a.running_mean, c, a.mean.as<C>()[c]);
      if (a.running_var.defined() && count >= 2) update(a.running_var, c, m2 / (count - 1));
    }
  });
}

void ChannelNormKernel::cpu(const Args& a, Workspace scratch) {
  cpu::with_row_type(a.x.dtype, true, [&]<class T>() {
    using C = cpu::ComputeType<T>;
    const ChannelShape& shape = a.shape;
    C *ones = static_cast<C*>(scratch.data), *zeros = ones + shape.channels;
    std::fill_n(ones, shape.channels, C(1));
    std::fill_n(zeros, shape.channels, C(0));
    const C* weight = a.weight.defined() ? a.weight.as<C>() : ones;
    const C* bias = a.bias.defined() ? a.bias.as<C>() : zeros;
    const C* mean = a.mean.as<C>();
    const C* rstd = a.rstd.as<C>();
    const cpu::RowInput<T> x(a.x);
    const cpu::RowOutput<T> y(a.y);
    cpu::parallel_buffered_rows<T>(
        shape.rows(), shape.row_length(), behind(scratch, a.affine_bytes()), a.row_bytes(),
        [&](std::int64_t row, T* buffer) {
          T* to = y.place(row, buffer);
          const T* from = x.read(row, to);
          compute_row(
              shape, row, to,
              [=](std::int64_t c) {
                return ForwardChannel<C>{mean[c], rstd[c], weight[c], bias[c]};
              },
              [=](const ForwardChannel<C>& c, std::int64_t i) {
                const C normal = (static_cast<C>(from[i]) - c.mean) * c.rstd;
                return scalar::fma(normal, c.weight, c.bias);
              });
          y.commit(row, to);
        });
  });
}

void ChannelNormBackwardKernel::cpu(const Args& a, Workspace scratch) {
  cpu::with_row_type(a.x.dtype, true, [&]<class T>() {
    using C = cpu::ComputeType<T>;
    const ChannelShape& shape = a.shape;
    const C* mean = a.mean.as<C>();
    const C* rstd = a.rstd.as<C>();
    C* scale = static_cast<C*>(scratch.data);
    C* mean_dy = scale + shape.channels;
    C* mean_dy_normal = mean_dy + shape.channels;
    const bool own = a.sum_dy.defined();
    const double count = own ? a.count.as<double>()[0] : 1;
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      scale[c] = a.weight.defined() ? rstd[c] * a.weight.as<C>()[c] : rstd[c];
      mean_dy[c] = own ? static_cast<C>(a.sum_dy.as<C>()[c] / count) : C(0);
      mean_dy_normal[c] = own ? static_cast<C>(a.sum_dy_normal.as<C>()[c] / count) : C(0);
    }
    const cpu::RowInput<T> dy(a.dy), x(a.x);
    const cpu::RowOutput<T> dx(a.dx);
    const std::int64_t n = shape.row_length();
    cpu::parallel_buffered_rows<T>(
        shape.rows(), n, behind(scratch, a.factor_bytes()), a.row_bytes(),
        [&](std::int64_t row, T* buffer) {
          const T *slope = dy.read(row, buffer), *from = x.read(row, buffer + n);
          T* to = dx.place(row, buffer + 2 * n);
          compute_row(
              shape, row, to,
              [=](std::int64_t c) {
                return BackwardChannel<C>{mean[c], rstd[c], scale[c], mean_dy[c],
                                          mean_dy_normal[c]};
              },
              [=](const BackwardChannel<C>& c, std::int64_t i) {
                const C normal = (static_cast<C>(from[i]) - c.mean) * c.rstd;
                const C rest = static_cast<C>(slope[i]) - c.mean_dy;
                return scalar::fma(-normal, c.mean_dy_normal, rest) * c.scale;
              });
          dx.commit(row, to);
        });
  });
}

}  // namespace tessera
