#include "tessera/tensor/kernels/row_norm.h"

#include <cmath>

#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

template <class C>
struct RowStatistics {
  C mean, rstd;
};

// First a guess of the mean, then the differences from it: accurate for large means. The variance
// is corrected for the rounding error of the mean.
template <class C>
RowStatistics<C> statistics(const C* x, std::int64_t n, bool centered, double eps) {
  if (n == 0) return {C(0), C(0)};
  const auto count = static_cast<double>(n);
  double exact = 0;
  if (centered) {
    const auto guess =
        static_cast<C>(cpu::row_sum<C>(n, [=](std::int64_t i) { return x[i]; }) / count);
    exact = guess + cpu::row_sum<C>(n, [=](std::int64_t i) { return x[i] - guess; }) / count;
  }
  const C mean = static_cast<C>(exact);
  const double squares = cpu::row_sum<C>(n, [=](std::int64_t i) {
    const C d = x[i] - mean;
    return scalar::mul(d, d);
  });
  const double rest = exact - mean;
  const double variance = squares / count - rest * rest;
  return {mean, static_cast<C>(1 / std::sqrt(variance + eps))};
}

// x may be y.
template <class C>
void normalize_row(const C* x, C* y, const RowNormShape& shape, const RowStatistics<C>& s,
                   const C* weight, const C* bias) {
  if (shape.spatial == 1) {
#pragma GCC ivdep
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      y[c] = scalar::fma((x[c] - s.mean) * s.rstd, weight[c], bias[c]);
    }
    return;
  }
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    const C w = weight[c], b = bias[c];
#pragma GCC ivdep
    for (std::int64_t i = c * shape.spatial; i < (c + 1) * shape.spatial; ++i) {
      y[i] = scalar::fma((x[i] - s.mean) * s.rstd, w, b);
    }
  }
}

// Channels in the compute type: in place, or `buffer` with the converted ones, or filled with
// `missing` if there are none.
template <class C>
const C* channels_of(const ConstView& view, std::int64_t count, C missing, C* buffer) {
  if (!view.defined()) {
    std::fill_n(buffer, count, missing);
    return buffer;
  }
  if (view.dtype == dtype_of<C>) return view.as<C>();
  cpu::load_run(view.dtype, view.data, 1, count, buffer);
  return buffer;
}

// A result, to be read again.
ConstView written(const View& out) {
  return {.data = out.data, .dtype = out.dtype, .shape = out.shape, .strides = out.strides};
}

// The rows that are normalised: x, or its sum with the residual, which is rounded and stored first.
template <class C>
class Summands {
 public:
  explicit Summands(const RowNormKernel::Args& a)
      : adds_(a.residual.defined()),
        x_(a.x),
        residual_(a.residual),
        sum_(a.sum),
        stored_(written(a.sum)) {}

  // In place, or in `buffer`, which has room for two rows if they are added.
  const C* read(std::int64_t row, std::int64_t n, C* buffer) const {
    if (!adds_) return x_.read(row, buffer);
    const C* x = x_.read(row, buffer);
    const C* other = residual_.read(row, cpu::buffer_row(buffer, 1, n));
    C* to = sum_.place(row, buffer);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) to[i] = x[i] + other[i];
    sum_.commit(row, to);
    return stored_.read(row, to);
  }

 private:
  bool adds_;
  cpu::RowInput<C> x_, residual_;
  cpu::RowOutput<C> sum_;
  cpu::RowInput<C> stored_;
};

// The derivative of one row; x and weight as in the forward.
template <class C>
struct BackwardRow {
  const C* dy;
  const C* x;
  const C* weight;
  RowStatistics<C> s;
  const RowNormShape& shape;

  C normal(std::int64_t i) const { return (x[i] - s.mean) * s.rstd; }

  // Adds to the sums of the row's channels.
  void add_affine(C* dweight, C* dbias) const {
    if (shape.spatial == 1) {
#pragma GCC ivdep
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        dweight[c] = scalar::fma(dy[c], normal(c), dweight[c]);
        dbias[c] += dy[c];
      }
      return;
    }
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const std::int64_t at = c * shape.spatial;
      dweight[c] += static_cast<C>(cpu::row_sum<C>(
          shape.spatial, [&](std::int64_t i) { return scalar::mul(dy[at + i], normal(at + i)); }));
      dbias[c] += static_cast<C>(
          cpu::row_sum<C>(shape.spatial, [&](std::int64_t i) { return dy[at + i]; }));
    }
  }

  // The means of g and of g * h over the row, where g = dy * weight.
  RowStatistics<C> means() const {
    double total = 0, along = 0;
    const std::int64_t n = shape.length();
    if (shape.spatial == 1) {
      total = cpu::row_sum<C>(n, [&](std::int64_t i) { return scalar::mul(dy[i], weight[i]); });
      along = cpu::row_sum<C>(
          n, [&](std::int64_t i) { return scalar::mul(dy[i] * weight[i], normal(i)); });
    } else {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        const std::int64_t at = c * shape.spatial;
        const double sum =
            cpu::row_sum<C>(shape.spatial, [&](std::int64_t i) { return dy[at + i]; });
        const double product = cpu::row_sum<C>(
            shape.spatial, [&](std::int64_t i) { return scalar::mul(dy[at + i], normal(at + i)); });
        total += sum * weight[c];
        along += product * weight[c];
      }
    }
    const auto count = static_cast<double>(n);
    return {static_cast<C>(total / count), static_cast<C>(along / count)};
  }

  void input_gradient(C* dx, bool centered) const {
    const RowStatistics<C> of = means();
    const C mean = centered ? of.mean : C(0), along = of.rstd, rstd = s.rstd;
    if (shape.spatial == 1) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < shape.channels; ++i) {
        dx[i] = scalar::fma(-normal(i), along, scalar::mul(dy[i], weight[i]) - mean) * rstd;
      }
      return;
    }
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const C w = weight[c];
#pragma GCC ivdep
      for (std::int64_t i = c * shape.spatial; i < (c + 1) * shape.spatial; ++i) {
        dx[i] = scalar::fma(-normal(i), along, scalar::mul(dy[i], w) - mean) * rstd;
      }
    }
  }
};

template <class C>
class Backward {
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
    weight_ = channels_of(a.weight, all_channels_, C(1), partial_ + 2 * a.blocks() * all_channels_);
  }

  void run(Workspace rows) const {
    const std::int64_t tasks = a_.blocks() * a_.shape.groups;
    cpu::parallel_buffered_rows<C>(tasks, a_.task_length(), rows, a_.row_bytes(),
                                   [&](std::int64_t task, C* buffer) {
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
  void block(std::int64_t block, std::int64_t group, C* buffer) const {
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
      const BackwardRow<C> one{.dy = dy_.read(row, buffer),
                               .x = x_.read(row, buffer + n),
                               .weight = weight_ + first,
                               .s = {mean, a_.rstd.as<C>()[row]},
                               .shape = shape};
      if (a_.dweight.defined() || a_.dbias.defined()) one.add_affine(dweight, dbias);
      if (!a_.dx.defined()) continue;
      C* dx = dx_.place(row, buffer + 2 * n);
      one.input_gradient(dx, a_.centered());
      dx_.commit(row, dx);
      if (a_.added.defined()) add_to(row, dx, buffer + 3 * n);
    }
  }

  // Adds the other gradient to the row of dx that was stored; `dx` and `buffer` have room for a row.
  void add_to(std::int64_t row, C* dx, C* buffer) const {
    const std::int64_t n = a_.shape.length();
    const C *from = rounded_.read(row, dx), *other = added_.read(row, buffer);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) dx[i] = from[i] + other[i];
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
  cpu::RowInput<C> dy_, x_, added_, rounded_;
  cpu::RowOutput<C> dx_;
};

// The workspace after the first `bytes`.
Workspace rest_of(Workspace scratch, std::size_t bytes, bool wanted) {
  return wanted ? Workspace{static_cast<char*>(scratch.data) + bytes, scratch.bytes - bytes}
                : Workspace{};
}

}  // namespace

void RowNormKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.x.dtype, [&]<class C>() {
    const RowNormShape& shape = a.shape;
    const std::int64_t all_channels = shape.groups * shape.channels, n = shape.length();
    C* const room = static_cast<C*>(scratch.data);
    const C* weight = channels_of(a.weight, all_channels, C(1), room);
    const C* bias = channels_of(a.bias, all_channels, C(0), room + all_channels);
    C *mean = a.mean.as<C>(), *rstd = a.rstd.as<C>();
    const Summands<C> x(a);
    const cpu::RowOutput<C> y(a.y);
    const Workspace rows = rest_of(scratch, a.affine_bytes(), !rows_in_place(a.y));
    cpu::parallel_buffered_rows<C>(
        shape.rows(), n, rows, a.row_bytes(), [&](std::int64_t row, C* buffer) {
          C* to = y.place(row, buffer);
          const C* from = x.read(row, n, buffer == nullptr ? to : buffer);
          const RowStatistics<C> s = statistics(from, n, a.centered, a.eps);
          if (a.mean.defined()) mean[row] = s.mean;
          rstd[row] = s.rstd;
          const std::int64_t first = row % shape.groups * shape.channels;
          normalize_row(from, to, shape, s, weight + first, bias + first);
          y.commit(row, to);
        });
  });
}

void RowNormBackwardKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.x.dtype, [&]<class C>() {
    Backward<C>(a, scratch).run(rest_of(scratch, a.partial_bytes(), true));
  });
}

}  // namespace tessera
