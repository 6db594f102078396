#include <cstdint>

#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera::cpu {
namespace {

// y += x b. If b has rows of unit stride, in the order of k; else in kLanes sums that are added
// pairwise. T: of y, in which is computed; S: of the operands. UnitStride: of x.
template <class T, class S, bool UnitStride>
void add_row_by_rows(const TileProduct& t, const S* x, std::int64_t x_stride, T* y) {
  const auto* b = static_cast<const S*>(t.b.data);
  const T alpha = static_cast<T>(t.alpha);
  const auto factor = [&](std::int64_t p) {
    return alpha * static_cast<T>(x[UnitStride ? p : p * x_stride]);
  };
  const auto wide = [](S element) { return static_cast<T>(element); };
  std::int64_t p = 0;
  for (; p + 4 <= t.k; p += 4) {
    const S *b0 = b + p * t.b.row_stride, *b1 = b0 + t.b.row_stride, *b2 = b1 + t.b.row_stride,
            *b3 = b2 + t.b.row_stride;
    const T x0 = factor(p), x1 = factor(p + 1), x2 = factor(p + 2), x3 = factor(p + 3);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < t.n; ++j) {
      const T sum = scalar::fma(x1, wide(b1[j]), scalar::fma(x0, wide(b0[j]), y[j]));
      y[j] = scalar::fma(x3, wide(b3[j]), scalar::fma(x2, wide(b2[j]), sum));
    }
  }
  for (; p < t.k; ++p) {
    const S* row = b + p * t.b.row_stride;
    const T x0 = factor(p);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < t.n; ++j) y[j] = scalar::fma(x0, wide(row[j]), y[j]);
  }
}

template <class T, class S, bool UnitStride>
void add_row_by_columns(const TileProduct& t, const S* x, std::int64_t x_stride, T* y) {
  constexpr std::int64_t kLanes = 32;
  for (std::int64_t j = 0; j < t.n; ++j) {
    const S* column = static_cast<const S*>(t.b.data) + j * t.b.column_stride;
    T lanes[kLanes] = {};
    std::int64_t p = 0;
    for (; p + kLanes <= t.k; p += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const auto factor = static_cast<T>(x[UnitStride ? p + lane : (p + lane) * x_stride]);
        lanes[lane] = scalar::fma(factor, static_cast<T>(column[p + lane]), lanes[lane]);
      }
    }
    for (std::int64_t lane = 0; p < t.k; ++p, ++lane)
      lanes[lane] = scalar::fma(static_cast<T>(x[UnitStride ? p : p * x_stride]),
                                static_cast<T>(column[p]), lanes[lane]);
    for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
      for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    y[j] += static_cast<T>(t.alpha) * lanes[0];
  }
}

template <class T, class S>
void multiply_in(const TileProduct& t) {
  prepare_output<T>(t);
  const auto* x = static_cast<const S*>(t.a.data);
  auto* y = static_cast<T*>(t.c.data);
  const std::int64_t stride = t.a.column_stride;
  const auto add =
      t.b.column_stride == 1
          ? (stride == 1 ? add_row_by_rows<T, S, true> : add_row_by_rows<T, S, false>)
          : (stride == 1 ? add_row_by_columns<T, S, true> : add_row_by_columns<T, S, false>);
  add(t, x, stride, y);
}

}  // namespace

bool is_row_product(const TileProduct& t) {
  if (t.m != 1) return false;
  if (t.a.dtype == DType::kBF16) return t.c.dtype == DType::kF32 && t.bias == nullptr;
  return t.a.dtype == t.c.dtype;
}

void multiply_row(const TileProduct& t) {
  if (t.a.dtype == DType::kBF16) return multiply_in<float, BFloat16>(t);
  if (t.a.dtype == DType::kF16) return multiply_in<float, Float16>(t);
  with_floating_type(t.c.dtype, [&]<class T>() { multiply_in<T, T>(t); });
}

}  // namespace tessera::cpu
