#include "tessera/tensor/kernels/row_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

template <class C>
struct RowStatistics {
  C mean, rstd;
};

// For cpu::stored(): statistics that are NaN get a payload of zero.
template <class C>
RowStatistics<C> as_numbers(RowStatistics<C> s) {
  return {cpu::number_as<C>(s.mean), cpu::number_as<C>(s.rstd)};
}

// First a guess of the mean, then the differences from it: accurate for large means. The variance
// is corrected for the distance of the guess from the mean.
template <class C, class T>
RowStatistics<C> statistics(const T* x, std::int64_t n, bool centered, double eps) {
  if (n == 0) return {C(0), C(0)};
  const auto count = static_cast<double>(n);
  if (!centered) {
    const double squares = cpu::row_sum<C>(n, [=](std::int64_t i) {
      const auto value = static_cast<C>(x[i]);
      return scalar::mul(value, value);
    });
    return {C(0), static_cast<C>(1 / std::sqrt(squares / count + eps))};
  }
  const auto guess = static_cast<C>(
      cpu::row_sum<C>(n, [=](std::int64_t i) { return static_cast<C>(x[i]); }) / count);
  const auto [sum, squares] = cpu::row_sums<C>(n, [=](std::int64_t i) {
    const C away = static_cast<C>(x[i]) - guess;
    return std::array<C, 2>{away, scalar::mul(away, away)};
  });
  const double rest = sum / count;
  const double variance = std::max(0.0, squares / count - rest * rest);  // tiny squares are 0
  return {static_cast<C>(guess + rest), static_cast<C>(1 / std::sqrt(variance + eps))};
}

// x may be y.
template <class C, class T>
void normalize_row(const T* x, T* y, const RowNormShape& shape, const RowStatistics<C> s,
                   const C* weight, const C* bias) {
  const auto normalize = [=](std::int64_t i, C w, C b) {
    y[i] = cpu::stored<T>(scalar::fma((static_cast<C>(x[i]) - s.mean) * s.rstd, w, b));
  };
  const std::int64_t channels = shape.channels, spatial = shape.spatial;
  if (spatial == 1) {
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) normalize(c, weight[c], bias[c]);
    return;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    const C w = weight[c], b = bias[c];
#pragma GCC ivdep
    for (std::int64_t i = c * spatial; i < (c + 1) * spatial; ++i) normalize(i, w, b);
  }
}

// Channels in the compute type, for rows of type T: in place, or `buffer` with the converted ones, or filled with
// `missing` if there are none. For rows of bf16 those that are NaN have a payload of zero, as cpu::stored() requires.
template <class T, class C>
const C* channels_of(const ConstView& view, std::int64_t count, C missing, C* buffer) {
  if (!view.defined()) {
    std::fill_n(buffer, count, missing);
    return buffer;
  }
  if (view.dtype == dtype_of<C>) {
    if (std::is_same_v<T, C>) return view.as<C>();
    std::transform(view.as<C>(), view.as<C>() + count, buffer, cpu::number_as<C>);
    return buffer;
  }
  cpu::load_run(view.dtype, view.data, 1, count, buffer);
  return buffer;
}

// A result, to be read again.
ConstView written(const View& out) {
  return {.data = out.data, .dtype = out.dtype, .shape = out.shape, .strides = out.strides};
}

// The rows that are normalised: x, or its sum with the residual, which is rounded and stored first.
template <class T>
class Summands {
 public:
  explicit Summands(const RowNormKernel::Args& a)
      : adds_(a.residual.defined()),
        x_(a.x),
        residual_(a.residual),
        sum_(a.sum),
        stored_(written(a.sum)) {}

  // In place, or in `buffer`, which has room for two rows if they are added.
  const T* read(std::int64_t row, std::int64_t n, T* buffer) const {
    const T* x = x_.read(row, buffer);
    if (!adds_) return x;
    const T* other = residual_.read(row, cpu::buffer_row(buffer, 1, n));
    T* to = sum_.place(row, buffer);
    using C = cpu::ComputeType<T>;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i)
      to[i] = cpu::stored<T>(static_cast<C>(x[i]) + static_cast<C>(other[i]));
    sum_.commit(row, to);
    return stored_.read(row, to);
  }

 private:
  bool adds_;
  cpu::RowInput<T> x_, residual_;
  cpu::RowOutput<T> sum_;
  cpu::RowInput<T> stored_;
};

// The derivative of one row; x and weight as in the forward.
template <class T>
struct BackwardRow {
  using C = cpu::ComputeType<T>;

  const T* dy;
  const T* x;
  const C* weight;
  RowStatistics<C> s;
  const RowNormShape& shape;

  C slope(std::int64_t i) const { return static_cast<C>(dy[i]); }
  C normal(std::int64_t i) const { return (static_cast<C>(x[i]) - s.mean) * s.rstd; }

  // Returns the means of g and of g * h over the row, where g = dy * weight, and adds dy * h and dy
  // to the sums of the row's channels.
  RowStatistics<C> means(C* dweight, C* dbias) const {
    const std::int64_t n = shape.length(), spatial = shape.spatial;
    double total = 0, along = 0;
    if (spatial == 1) {
#pragma GCC ivdep
      for (std::int64_t c = 0; c < n; ++c) {
        dweight[c] = scalar::fma(slope(c), normal(c), dweight[c]);
        dbias[c] += slope(c);
      }
      const auto [g, product] = cpu::row_sums<C>(n, [&](std::int64_t i) {
        const C scaled = scalar::mul(slope(i), weight[i]);
        return std::array<C, 2>{scaled, scalar::mul(scaled, normal(i))};
      });
      total = g, along = product;
    }
    for (std::int64_t c = 0; c < shape.channels && spatial != 1; ++c) {
      const std::int64_t at = c * spatial;
      const auto [sum, product] = cpu::row_sums<C>(spatial, [&](std::int64_t i) {
        return std::array<C, 2>{slope(at + i), scalar::mul(slope(at + i), normal(at + i))};
      });
      dweight[c] += static_cast<C>(product);
      dbias[c] += static_cast<C>(sum);
      total += sum * weight[c];
      along += product * weight[c];
    }
    const auto count = static_cast<double>(n);
    return {static_cast<C>(total / count), static_cast<C>(along / count)};
  }

  void input_gradient(const RowStatistics<C>& of, bool centered, T* dx) const {
    const C mean = centered ? of.mean : C(0), along = of.rstd, rstd = s.rstd;
    if (shape.spatial == 1) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < shape.channels; ++i) {
        dx[i] = cpu::stored<T>(
            scalar::fma(-normal(i), along, scalar::mul(slope(i), weight[i]) - mean) * rstd);
      }
      return;
    }
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const C w = weight[c];
#pragma GCC ivdep
      for (std::int64_t i = c * shape.spatial; i < (c + 1) * shape.spatial; ++i) {
        dx[i] =
            cpu::stored<T>(scalar::fma(-normal(i), along, scalar::mul(slope(i), w) - mean) * rstd);
      }
    }
  }
};

template <class T>
class Backward {
  using C = cpu::ComputeType<T>;

 public:
  Backward(const RowNormBackwardKernel::Args& a, Workspace scratch)
      : a_(a),
        all_channels_(a.shape.groups * a.shape.channels),
        partial_(static_cast<C*>(scratch.data)),
        dy_(a.dy),
        x_(a.x),
        added_(a.added),
        rounded_(written(a.dx)),
        dx_(a.dx) {
    weight_ =
        channels_of<T>(a.weight, all_channels_, C(1), partial_ + 2 * a.blocks() * all_channels_);
  }

  void run(Workspace rows) const {
    const std::int64_t tasks = a_.blocks() * a_.shape.groups;
    cpu::parallel_buffered_rows<T>(tasks, a_.task_length(), rows, a_.row_bytes(),
                                   [&](std::int64_t task, T* buffer) {
                                     block(task / a_.shape.groups, task % a_.shape.groups, buffer);
                                   });
    total(a_.dweight, 0);
    total(a_.dbias, 1);
  }

 private:
  C* partial(std::int64_t block, int which) const {
    return partial_ + (2 * block + which) * all_channels_;
  }

  // One group of a block of samples.
  void block(std::int64_t block, std::int64_t group, T* buffer) const {
    const RowNormShape& shape = a_.shape;
    const std::int64_t n = shape.length(), first = group * shape.channels;
    C *dweight = partial(block, 0) + first, *dbias = partial(block, 1) + first;
    std::fill_n(dweight, shape.channels, C(0));
    std::fill_n(dbias, shape.channels, C(0));
    const std::int64_t begin = block * a_.samples_per_block();
    const std::int64_t end = std::min(shape.samples, begin + a_.samples_per_block());
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const std::int64_t row = sample * shape.groups + group;
      const C mean = a_.centered() ? a_.mean.as<C>()[row] : C(0);
      const BackwardRow<T> one{.dy = dy_.read(row, buffer),
                               .x = x_.read(row, buffer + n),
                               .weight = weight_ + first,
                               .s = as_numbers<C>({mean, a_.rstd.as<C>()[row]}),
                               .shape = shape};
      const RowStatistics<C> means = one.means(dweight, dbias);
      if (!a_.dx.defined()) continue;
      T* dx = dx_.place(row, buffer + 2 * n);
      one.input_gradient(means, a_.centered(), dx);
      dx_.commit(row, dx);
      if (a_.added.defined()) add_to(row, dx, buffer + 3 * n);
    }
  }

  // Adds the other gradient to the row of dx that was stored; `dx` and `buffer` have room for a row.
  void add_to(std::int64_t row, T* dx, T* buffer) const {
    const std::int64_t n = a_.shape.length();
    const T *from = rounded_.read(row, dx), *other = added_.read(row, buffer);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i)
      dx[i] = cpu::stored<T>(static_cast<C>(from[i]) + static_cast<C>(other[i]));
    dx_.commit(row, dx);
  }

  void total(const View& out, int which) const {
    if (!out.defined()) return;
    cpu::parallel_rows(all_channels_, a_.blocks(), [&](std::int64_t c) {
      double sum = 0;
      for (std::int64_t b = 0; b < a_.blocks(); ++b) sum += partial(b, which)[c];
      const C total = static_cast<C>(sum);
      cpu::store_run(out.dtype, cpu::advance(out.data, out.dtype, c), 1, 1, &total);
    });
  }

  const RowNormBackwardKernel::Args& a_;
  std::int64_t all_channels_;
  C* partial_;
  const C* weight_;
  cpu::RowInput<T> dy_, x_, added_, rounded_;
  cpu::RowOutput<T> dx_;
};

// The workspace after the first `bytes`.
Workspace rest_of(Workspace scratch, std::size_t bytes, bool wanted) {
  return wanted ? Workspace{static_cast<char*>(scratch.data) + bytes, scratch.bytes - bytes}
                : Workspace{};
}

}  // namespace

void RowNormKernel::cpu(const Args& a, Workspace scratch) {
  cpu::with_row_type(a.x.dtype, true, [&]<class T>() {
    using C = cpu::ComputeType<T>;
    const RowNormShape& shape = a.shape;
    const std::int64_t all_channels = shape.groups * shape.channels, n = shape.length();
    C* const room = static_cast<C*>(scratch.data);
    const C* weight = channels_of<T>(a.weight, all_channels, C(1), room);
    const C* bias = channels_of<T>(a.bias, all_channels, C(0), room + all_channels);
    C *mean = a.mean.as<C>(), *rstd = a.rstd.as<C>();
    const Summands<T> x(a);
    const cpu::RowOutput<T> y(a.y);
    const Workspace rows = rest_of(scratch, a.affine_bytes(), !rows_in_place(a.y));
    cpu::parallel_buffered_rows<T>(
        shape.rows(), n, rows, a.row_bytes(), [&](std::int64_t row, T* buffer) {
          T* to = y.place(row, buffer);
          const T* from = x.read(row, n, buffer == nullptr ? to : buffer);
          const RowStatistics<C> s = statistics<C>(from, n, a.centered, a.eps);
          if (a.mean.defined()) mean[row] = s.mean;
          rstd[row] = s.rstd;
          const std::int64_t first = row % shape.groups * shape.channels;
          normalize_row(from, to, shape, as_numbers(s), weight + first, bias + first);
          y.commit(row, to);
        });
  });
}

void RowNormBackwardKernel::cpu(const Args& a, Workspace scratch) {
  cpu::with_row_type(a.x.dtype, true, [&]<class T>() {
    Backward<T>(a, scratch).run(rest_of(scratch, a.partial_bytes(), true));
  });
}

}  // namespace tessera
