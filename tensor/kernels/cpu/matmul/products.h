#pragma once

/// Products of matrices in scratch memory, for kernels that consist of them. The only place in
/// kernels/cpu outside the matmul kernel that uses the libraries.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/kernels/cpu/convert.h"
#ifdef __AVX2__
#include "tessera/tensor/kernels/cpu/load8.h"
#endif
#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

/// Calls `body.template operator()<T>()` with the type of elements of `dtype` that are computed with as C: C itself, or a
/// 16-bit type where C is float.
template <class C, class Body>
void with_stored_type(DType dtype, const Body& body) {
  if constexpr (std::is_same_v<C, float>) {
    if (dtype == DType::kBF16) return body.template operator()<BFloat16>();
    if (dtype == DType::kF16) return body.template operator()<Float16>();
  }
  body.template operator()<C>();
}

/// out[i] = from[i]. By hand: the compiler's loop over the rest of a run costs more than a short run does. The last steps
/// overlap instead.
inline void widen_short_run(const BFloat16* from, std::int64_t n, float* out) {
#ifdef __AVX2__
  const auto widen_8 = [&](std::int64_t i) { _mm256_storeu_ps(out + i, load8(from + i)); };
  const auto widen_4 = [&](std::int64_t i) {
    std::int64_t bits;
    std::memcpy(&bits, from + i, sizeof(bits));
    const __m128i wide = _mm_slli_epi32(_mm_cvtepu16_epi32(_mm_cvtsi64_si128(bits)), 16);
    std::memcpy(out + i, &wide, sizeof(wide));
  };
  if (n >= 8) {
    for (std::int64_t i = 0; i + 8 < n; i += 8) widen_8(i);
    return widen_8(n - 8);
  }
  if (n >= 4) {
    widen_4(0);
    return widen_4(n - 4);
  }
#endif
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(from[i]);
}

/// The same for elements that need no conversion: copies of some cache lines are shorter than the call of a library.
template <class C>
void copy_short_run(const C* from, std::int64_t n, C* out) {
#ifdef __AVX2__
  if constexpr (std::is_same_v<C, float>) {
    const auto copy_8 = [&](std::int64_t i) {
      _mm256_storeu_ps(out + i, _mm256_loadu_ps(from + i));
    };
    if (n >= 8) {
      for (std::int64_t i = 0; i + 8 < n; i += 8) copy_8(i);
      return copy_8(n - 8);
    }
  }
#endif
  for (std::int64_t i = 0; i < n; ++i) out[i] = from[i];
}

/// out[i] = from[i * step], i < n, as load_run; for short runs, where a call and the choice of a type would cost more than
/// the elements do.
template <class T, class C>
void load_short_run(const T* from, std::int64_t step, std::int64_t n, C* out) {
  if constexpr (std::is_same_v<T, Float16>) {
    load_run(DType::kF16, from, step, n, out);  // by instructions that the compiler does not find
  } else if (step != 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(from[i * step]);
  } else if constexpr (std::is_same_v<T, C>) {
    copy_short_run(from, n, out);
  } else {
    widen_short_run(from, n, out);
  }
}
/// The same from element `at` of x on.
template <class C>
void load_short_run(const ConstView& x, std::int64_t at, std::int64_t step, std::int64_t n,
                    C* out) {
  with_stored_type<C>(x.dtype, [&]<class T>() { load_short_run(x.as<T>() + at, step, n, out); });
}

/// A matrix in memory: its first element and strides, one of which is 1.
template <class T>
struct Operand {
  T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  Operand transposed() const { return {data, column_stride, row_stride}; }
};

/// c = a b + beta * c; extents above 0, c with rows of unit stride.
template <class C>
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Operand<const C> a;
  Operand<const C> b;
  Operand<C> c;
  double beta = 0;
};

/// Whether multiply() packs its operands, so that the distance of their rows hardly matters.
#ifdef __AVX512F__
inline constexpr bool kProductsPack = false;
#else
inline constexpr bool kProductsPack = true;
#endif

/// Uses one thread. `scratch` has product_scratch() bytes.
template <class C>
void multiply(const Product<C>& p, Workspace scratch) {
  constexpr DType kType = dtype_of<C>;
  const TileProduct tile{.m = p.m,
                         .n = p.n,
                         .k = p.k,
                         .a = {p.a.data, kType, p.a.row_stride, p.a.column_stride},
                         .b = {p.b.data, kType, p.b.row_stride, p.b.column_stride},
                         .c = {p.c.data, kType, p.c.row_stride, 1},
                         .beta = p.beta};
  if constexpr (kType == DType::kF64) {
    multiply_by_eigen(tile, scratch);
  } else {
    multiply_floats(tile, scratch);
  }
}

}  // namespace tessera::cpu
