#pragma once

/// PoolGeometry for kernels: which windows contain which elements, without slow divisions. Pure
/// functions, tested on the CPU against PoolAxis.

#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/cuda/elementwise/walk.h"
#include "tessera/tensor/kernels/pool.h"

namespace tessera::cuda {

using PoolDivisor = Divisor<std::uint64_t>;
/// For an extent, which may be 0 if nothing is divided by it.
inline PoolDivisor pool_divisor(std::int64_t extent) {
  return make_divisor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, extent)));
}
/// For n >= 0.
TESSERA_HD std::int64_t quotient(std::int64_t n, const PoolDivisor& by) {
  return static_cast<std::int64_t>(quotient(static_cast<std::uint64_t>(n), by));
}

/// The windows of one spatial dim, as in PoolAxis.
struct PoolWindows {
  PoolWindows() = default;
  explicit PoolWindows(const PoolAxis& axis)
      : in(axis.in),
        out(axis.out),
        stride(axis.stride),
        padding(axis.padding),
        dilation(axis.adaptive ? 1 : axis.dilation),
        span((axis.kernel - 1) * axis.dilation + 1),
        adaptive(axis.adaptive),
        by_in(pool_divisor(axis.in)),
        by_out(pool_divisor(axis.out)),
        by_stride(pool_divisor(axis.stride)),
        by_dilation(pool_divisor(axis.adaptive ? 1 : axis.dilation)) {}

  TESSERA_HD std::int64_t first(std::int64_t o) const {
    return adaptive ? quotient(o * in, by_out) : o * stride - padding;
  }
  TESSERA_HD std::int64_t end(std::int64_t o) const {
    return adaptive ? quotient((o + 1) * in + out - 1, by_out) : first(o) + span;
  }
  TESSERA_HD std::int64_t first_inside(std::int64_t o) const {
    const std::int64_t f = first(o);
    return f >= 0 ? f : f + quotient(-f + dilation - 1, by_dilation) * dilation;
  }
  TESSERA_HD std::int64_t end_inside(std::int64_t o) const {
    const std::int64_t e = end(o);
    return e < in ? e : in;
  }
  TESSERA_HD std::int64_t padded_count(std::int64_t o) const {
    const std::int64_t e = end(o), most = in + padding;
    return (adaptive || e < most ? e : most) - first(o);
  }
  TESSERA_HD std::int64_t first_output(std::int64_t i) const {
    if (adaptive) return quotient(i * out, by_in);
    const std::int64_t from = i + padding - span + 1;
    return from <= 0 ? 0 : quotient(from + stride - 1, by_stride);
  }
  TESSERA_HD std::int64_t end_output(std::int64_t i) const {
    if (adaptive) return quotient((i + 1) * out + in - 1, by_in);
    const std::int64_t end = quotient(i + padding, by_stride) + 1;
    return end < out ? end : out;
  }

  std::int64_t in = 1, out = 1, stride = 1, padding = 0, dilation = 1, span = 1;
  bool adaptive = false;
  PoolDivisor by_in, by_out, by_stride, by_dilation;
};

/// Both dims.
struct PoolPlanes {
  PoolPlanes() = default;
  explicit PoolPlanes(const PoolGeometry& g)
      : planes(g.planes), h(g.h), w(g.w), count_include_pad(g.count_include_pad) {}

  TESSERA_HD std::int64_t divisor(std::int64_t i, std::int64_t j) const {
    if (count_include_pad) return h.padded_count(i) * w.padded_count(j);
    return (h.end_inside(i) - h.first_inside(i)) * (w.end_inside(j) - w.first_inside(j));
  }

  std::int64_t planes = 0;
  PoolWindows h, w;
  bool count_include_pad = true;
};

/// The position of an element of one side: its plane, and its row and column there.
struct PoolPlace {
  std::int64_t plane, row, column;
};
struct PoolSide {
  PoolSide() = default;
  PoolSide(std::int64_t rows, std::int64_t columns)
      : by_plane(pool_divisor(rows * columns)), by_row(pool_divisor(columns)) {}

  TESSERA_HD PoolPlace place(std::int64_t i) const {
    const std::int64_t plane = quotient(i, by_plane),
                       rest = i - plane * static_cast<std::int64_t>(by_plane.value);
    const std::int64_t row = quotient(rest, by_row);
    return {plane, row, rest - row * static_cast<std::int64_t>(by_row.value)};
  }

  PoolDivisor by_plane, by_row;
};

}  // namespace tessera::cuda
