#include "tessera/tensor/kernels/softmax.h"

#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// x may be y.
template <class C>
void softmax_row(const C* x, C* y, std::int64_t n) {
  const C largest = cpu::row_max(x, n);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = scalar::exp(x[i] - largest);
  const auto total = static_cast<C>(cpu::row_sum<C>(n, [=](std::int64_t i) { return y[i]; }));
  for (std::int64_t i = 0; i < n; ++i) y[i] /= total;
}

template <class C>
void log_softmax_row(const C* x, C* y, std::int64_t n) {
  const C largest = cpu::row_max(x, n);
  const auto total = static_cast<C>(
      cpu::row_sum<C>(n, [=](std::int64_t i) { return scalar::exp(x[i] - largest); }));
  const C log_total = scalar::log(total);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - largest) - log_total;
}

// dy may be dx.
template <class C>
void softmax_backward_row(const C* dy, const C* y, C* dx, std::int64_t n) {
  const auto dot =
      static_cast<C>(cpu::row_sum<C>(n, [=](std::int64_t i) { return scalar::mul(dy[i], y[i]); }));
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) dx[i] = scalar::mul(y[i], dy[i] - dot);
}

template <class C>
void log_softmax_backward_row(const C* dy, const C* y, C* dx, std::int64_t n) {
  const auto total = static_cast<C>(cpu::row_sum<C>(n, [=](std::int64_t i) { return dy[i]; }));
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) dx[i] = scalar::fma(-scalar::exp(y[i]), total, dy[i]);
}

}  // namespace

void SoftmaxKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.x.dtype, [&]<class C>() {
    const std::int64_t n = a.x.shape.back();
    if (n == 0) return;
    const cpu::RowInput<C> x(a.x);
    const cpu::RowOutput<C> y(a.y);
    const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(C);
    cpu::parallel_buffered_rows<C>(
        a.x.numel() / n, n, scratch, bytes, [&](std::int64_t row, C* buffer) {
          C* to = y.place(row, buffer);
          const C* from = x.read(row, to);
          a.log ? log_softmax_row(from, to, n) : softmax_row(from, to, n);
          y.commit(row, to);
        });
  });
}

void SoftmaxBackwardKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.dx.dtype, [&]<class C>() {
    const std::int64_t n = a.dx.shape.back();
    if (n == 0) return;
    const cpu::RowInput<C> dy(a.dy), y(a.y);
    const cpu::RowOutput<C> dx(a.dx);
    const std::size_t bytes = 3 * static_cast<std::size_t>(n) * sizeof(C);
    cpu::parallel_buffered_rows<C>(a.dx.numel() / n, n, scratch, bytes,
                                   [&](std::int64_t row, C* buffer) {
                                     C* to = dx.place(row, buffer);
                                     const C* slope = dy.read(row, cpu::buffer_row(buffer, 1, n));
                                     const C* value = y.read(row, cpu::buffer_row(buffer, 2, n));
                                     a.log ? log_softmax_backward_row(slope, value, to, n)
                                           : softmax_backward_row(slope, value, to, n);
                                     dx.commit(row, to);
                                   });
  });
}

}  // namespace tessera
