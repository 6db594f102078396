#include "tessera/tensor/kernels/rotary.h"

#include <cmath>

#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// x and y are different rows.
template <class C>
void turn_halves(const C* x, C* y, const C* cos, const C* sin, C sign, std::int64_t pairs) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < pairs; ++i) {
    const C a = x[i], b = x[pairs + i], s = sin[i] * sign;
    y[i] = scalar::fma(-b, s, scalar::mul(a, cos[i]));
    y[pairs + i] = scalar::fma(a, s, scalar::mul(b, cos[i]));
  }
}

template <class C>
void turn_neighbours(const C* x, C* y, const C* cos, const C* sin, C sign, std::int64_t pairs) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < pairs; ++i) {
    const C a = x[2 * i], b = x[2 * i + 1], s = sin[i] * sign;
    y[2 * i] = scalar::fma(-b, s, scalar::mul(a, cos[i]));
    y[2 * i + 1] = scalar::fma(a, s, scalar::mul(b, cos[i]));
  }
}

}  // namespace

void RotaryTableKernel::cpu(const Args& a, Workspace) {
  with_floating_type(a.cos.dtype, [&]<class C>() {
    const std::int64_t pairs = a.cos.shape[1];
    C *cos = a.cos.as<C>(), *sin = a.sin.as<C>();
    // In f64: the f32 error of the angle of a late position would be far too large.
    cpu::parallel_rows(a.cos.shape[0], 16 * pairs, [=](std::int64_t row) {
      const auto position = static_cast<double>(a.offset + row);
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double turn = -static_cast<double>(i) / static_cast<double>(pairs);
        const double angle = position * std::pow(a.base, turn);
        cos[row * pairs + i] = static_cast<C>(std::cos(angle));
        sin[row * pairs + i] = static_cast<C>(std::sin(angle));
      }
    });
  });
}

void RotaryKernel::cpu(const Args& a, Workspace scratch) {
  with_floating_type(a.x.dtype, [&]<class C>() {
    const std::int64_t n = a.x.shape.back(), pairs = a.cos.shape[1];
    if (n == 0) return;
    const std::int64_t heads = a.x.shape[a.x.shape.ndim() - 2], positions = a.cos.shape[0];
    const cpu::RowInput<C> x(a.x);
    const cpu::RowOutput<C> y(a.y);
    const cpu::RowInput<C> cos(a.cos), sin(a.sin);
    const C sign = a.inverse ? C(-1) : C(1);
    cpu::parallel_buffered_rows<C>(
        a.x.numel() / n, n, scratch, a.row_bytes(), [&](std::int64_t row, C* buffer) {
          const C* from = x.read(row, buffer);
          C* to = y.place(row, cpu::buffer_row(buffer, 1, n));
          const std::int64_t position = row / heads % positions;
          const C *c = cos.read(position, nullptr), *s = sin.read(position, nullptr);
          a.interleaved ? turn_neighbours(from, to, c, s, sign, pairs)
                        : turn_halves(from, to, c, s, sign, pairs);
          std::copy(from + 2 * pairs, from + n, to + 2 * pairs);
          y.commit(row, to);
        });
  });
}

}  // namespace tessera
