#pragma once

/// Exponentials of many numbers: where most of the time of softmax, attention and cross entropy goes.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "tessera/tensor/kernels/cpu/lanes.h"
#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera::cpu {

namespace detail {

#ifdef __AVX512F__
/// scalar::exp, operation by operation, except for the end: one instruction multiplies by 2^n, and rounds once as its
/// two steps do. By hand, because the compiler does not find that instruction, nor those of minimum and maximum.
inline __m512 exp_16(__m512 x) {
  // Maximum and minimum return the second operand where one is NaN.
  const __m512 upper = _mm512_min_ps(_mm512_set1_ps(89.0f), x);
  const __m512 bounded = _mm512_max_ps(_mm512_set1_ps(-104.0f), upper);
  const __m512 shifter = _mm512_set1_ps(12582912.0f);
  const __m512 shifted = _mm512_fmadd_ps(bounded, _mm512_set1_ps(1.44269504088896341f), shifter);
  const __m512 n = _mm512_sub_ps(shifted, shifter);
  const __m512 high = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693359375f), bounded);
  const __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), high);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  for (const float c :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  const __m512 rest = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
  return _mm512_scalef_ps(_mm512_add_ps(rest, _mm512_set1_ps(1.0f)), n);
}
#elif defined(__AVX2__)
/// y[i] = scalar::exp(x[i] - shift) for 8 kCount numbers, operation by operation. By hand, because a CPU that computes several
/// vectors side by side is 1.4 times as fast as one that waits for the steps of each.
template <int kCount>
void exp_vectors(const float* x, __m256 shift, float* y) {
  constexpr auto kEach = [](const auto& step) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) step(v);
  };
  const __m256 shifter = _mm256_set1_ps(12582912.0f);
  __m256 shifted[kCount], r[kCount], p[kCount];
  kEach([&](int v) {  // maximum and minimum return the second operand where one is NaN
    const __m256 down = _mm256_sub_ps(_mm256_loadu_ps(x + 8 * v), shift);
    const __m256 upper = _mm256_min_ps(_mm256_set1_ps(89.0f), down);
    r[v] = _mm256_max_ps(_mm256_set1_ps(-104.0f), upper);
  });
  kEach([&](int v) {
    shifted[v] = _mm256_fmadd_ps(r[v], _mm256_set1_ps(1.44269504088896341f), shifter);
  });
  for (const float part : {-0.693359375f, 2.12194440e-4f}) {
    kEach([&](int v) {
      r[v] = _mm256_fmadd_ps(_mm256_sub_ps(shifted[v], shifter), _mm256_set1_ps(part), r[v]);
    });
  }
  kEach([&](int v) { p[v] = _mm256_set1_ps(1.9875691500e-4f); });
  for (const float c :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    kEach([&](int v) { p[v] = _mm256_fmadd_ps(p[v], r[v], _mm256_set1_ps(c)); });
  kEach([&](int v) {
    const __m256 rest = _mm256_fmadd_ps(p[v], _mm256_mul_ps(r[v], r[v]), r[v]);
    // Each half of the exponent, plus 127, becomes the exponent of a factor.
    const __m256i exponent =
        _mm256_sub_epi32(_mm256_castps_si256(shifted[v]), _mm256_castps_si256(shifter));
    const __m256i half = _mm256_srai_epi32(exponent, 1);
    const auto power = [](__m256i of) {
      return _mm256_castsi256_ps(
          _mm256_slli_epi32(_mm256_add_epi32(of, _mm256_set1_epi32(127)), 23));
    };
    const __m256 most = _mm256_mul_ps(_mm256_add_ps(rest, _mm256_set1_ps(1.0f)), power(half));
    _mm256_storeu_ps(y + 8 * v, _mm256_mul_ps(most, power(_mm256_sub_epi32(exponent, half))));
  });
}
#endif

}  // namespace detail

/// y[i] = exp(x[i] - shift), i < n. y may be x.
template <class C>
void exp_run(std::int64_t n, const C* x, C shift, C* y) {
#ifdef __AVX512F__
  if constexpr (std::is_same_v<C, float>) {
    const __m512 down = _mm512_set1_ps(shift);
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16)
      _mm512_storeu_ps(y + i, detail::exp_16(_mm512_sub_ps(_mm512_loadu_ps(x + i), down)));
    if (i == n) return;
    const auto rest = static_cast<__mmask16>((1u << (n - i)) - 1u);
    const __m512 last = _mm512_maskz_loadu_ps(rest, x + i);
    _mm512_mask_storeu_ps(y + i, rest, detail::exp_16(_mm512_sub_ps(last, down)));
    return;
  }
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<C, float>) {
    const __m256 down = _mm256_set1_ps(shift);
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) detail::exp_vectors<4>(x + i, down, y + i);
    for (; i + 8 <= n; i += 8) detail::exp_vectors<1>(x + i, down, y + i);
    if (i == n) return;
    float last[8] = {};
    std::copy_n(x + i, n - i, last);
    detail::exp_vectors<1>(last, down, last);
    std::copy_n(last, n - i, y + i);
    return;
  }
#endif
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = scalar::exp(x[i] - shift);
}

inline void run(std::int64_t n, functors::Exp, const float* x, float* y) { exp_run(n, x, 0.0f, y); }

/// The sum of exp(x[i] - shift), in the order of row_sum() of rows.h.
template <class C>
double sum_of_exps(std::int64_t n, const C* x, C shift) {
  constexpr std::int64_t kBlock = ReduceKernel::kBlock;
  C exps[kBlock];
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, n - begin);
    exp_run(count, x + begin, shift, exps);
    total += lane_sum<C>(count, [&](std::int64_t i) { return exps[i]; });
  }
  return total;
}

}  // namespace tessera::cpu
