#pragma once

/// Running sums and products of four adjacent lines together, each in order in f64. A step waits for
/// the step before it; the steps of four lines are one instruction. Elements of four lines that
/// belong together come from a square of four by four, which is transposed in registers.

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "tessera/tensor/half.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/math/scan_steps.h"

namespace tessera::cpu {

/// Four elements of type T, one in each 32 bits.
template <class T>
struct Quad;

template <>
struct Quad<float> {
  static __m128 load(const float* from) { return _mm_loadu_ps(from); }
  static void store(__m128 values, float* to) { _mm_storeu_ps(to, values); }
  static void narrow(const __m256d (&values)[4], __m128 (&to)[4]) {
    for (int i = 0; i < 4; ++i) to[i] = _mm256_cvtpd_ps(values[i]);
  }
};

template <>
struct Quad<BFloat16> {
  static __m128 load(const BFloat16* from) {
    const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(bits), 16));
  }
  static void store(__m128 values, BFloat16* to) {
    const __m128i bits = _mm_castps_si128(values);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi32(bits, bits));
  }
  /// The same as BFloat16(double), which rounds once.
  static void narrow(const __m256d (&values)[4], __m128 (&to)[4]) {
    const __m256d least = _mm256_set1_pd(0x1p-126), sign = _mm256_set1_pd(-0.0);
    __m256d small = _mm256_setzero_pd();  // or NaN
    for (int i = 0; i < 4; ++i) {
      const __m256d size = _mm256_andnot_pd(sign, values[i]);
      small = _mm256_or_pd(small, _mm256_cmp_pd(size, least, _CMP_NGE_UQ));
    }
    const bool any_small = _mm256_movemask_pd(small) != 0;
    for (int i = 0; i < 4; ++i) to[i] = any_small ? rounded_small(values[i]) : rounded(values[i]);
  }

 private:
  // The bits of normal numbers and infinities, rounded as integers to the mantissa of bf16. f32 then
  // holds them exactly, or as infinity.
  static __m128 rounded(__m256d values) {
    constexpr int kDropped = 52 - 7;
    const __m256i bits = _mm256_castpd_si256(values);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi64(bits, kDropped), _mm256_set1_epi64x(1));
    const __m256i half = _mm256_set1_epi64x((std::int64_t{1} << (kDropped - 1)) - 1);
    const __m256i sum = _mm256_add_epi64(_mm256_add_epi64(bits, half), last);
    const __m256i kept = _mm256_and_si256(sum, _mm256_set1_epi64x(-(std::int64_t{1} << kDropped)));
    const __m128 nearest = _mm256_cvtpd_ps(_mm256_castsi256_pd(kept));
    return _mm_castsi128_ps(_mm_srli_epi32(_mm_castps_si128(nearest), 16));
  }
  // All numbers: rounded to odd, as in half.h, then to nearest.
  static __m128 rounded_small(__m256d values) {
    const __m128 nearest = _mm256_cvtpd_ps(values), sign = _mm_set1_ps(-0.0f);
    const __m256d back = _mm256_cvtps_pd(nearest), wide_sign = _mm256_set1_pd(-0.0);
    const __m128i inexact = mask_of(_mm256_cmp_pd(back, values, _CMP_NEQ_OQ));
    const __m128i too_large = mask_of(_mm256_cmp_pd(
        _mm256_andnot_pd(wide_sign, back), _mm256_andnot_pd(wide_sign, values), _CMP_GT_OQ));
    const __m128i one = _mm_set1_epi32(1), bits = _mm_castps_si128(nearest);
    const __m128i even = _mm_cmpeq_epi32(_mm_and_si128(bits, one), _mm_setzero_si128());
    const __m128i to_odd =
        _mm_and_si128(_mm_and_si128(inexact, even), _mm_or_si128(too_large, one));
    const __m128i odd = _mm_add_epi32(bits, to_odd);
    const __m128i is_nan = _mm_castps_si128(_mm_cmpunord_ps(nearest, sign));
    const __m128i last = _mm_and_si128(_mm_srli_epi32(odd, 16), one);
    const __m128i half = _mm_andnot_si128(is_nan, _mm_add_epi32(last, _mm_set1_epi32(0x7fff)));
    const __m128i quiet = _mm_and_si128(is_nan, _mm_set1_epi32(0x400000));
    const __m128i rounded = _mm_or_si128(_mm_add_epi32(odd, half), quiet);
    return _mm_castsi128_ps(_mm_srli_epi32(rounded, 16));
  }
  static __m128i mask_of(__m256d wide) {
    const __m256 both = _mm256_castpd_ps(wide);
    return _mm_castps_si128(
        _mm_shuffle_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1), 0x88));
  }
};

/// Steps that a vector instruction takes.
template <class Step>
inline constexpr bool kHasQuads =
    std::is_same_v<Step, SumStep<double>> || std::is_same_v<Step, ProdStep<double>>;

/// Four lines of n elements, which begin `x_apart` and `y_apart` elements after each other; their
/// elements are adjacent, in ascending order or, if `reverse` is set, in descending order.
template <class Step, class T, bool reverse>
void scan_quad(const T* x, std::int64_t x_apart, T* y, std::int64_t y_apart, std::int64_t n) {
  constexpr std::int64_t kSign = reverse ? -1 : 1, kLowest = reverse ? -3 : 0;
  __m256d state = _mm256_set1_pd(Step::none());
  const auto step = [&state](__m128 values) {
    const __m256d wide = _mm256_cvtps_pd(values);
    state = std::is_same_v<Step, SumStep<double>> ? _mm256_add_pd(state, wide)
                                                  : _mm256_mul_pd(state, wide);
    return state;
  };
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const T* from = x + kSign * i + kLowest;
    T* to = y + kSign * i + kLowest;
    __m128 q[4];
    for (int w = 0; w < 4; ++w) q[w] = Quad<T>::load(from + w * x_apart);
    _MM_TRANSPOSE4_PS(q[0], q[1], q[2], q[3]);
    __m256d results[4];
    for (int at = 0; at < 4; ++at) {
      const int place = reverse ? 3 - at : at;
      results[place] = step(q[place]);
    }
    Quad<T>::narrow(results, q);
    _MM_TRANSPOSE4_PS(q[0], q[1], q[2], q[3]);
    for (int w = 0; w < 4; ++w) Quad<T>::store(q[w], to + w * y_apart);
  }
  double states[4];
  _mm256_storeu_pd(states, state);
  for (; i < n; ++i) {
    for (int w = 0; w < 4; ++w) {
      const auto value = convert_element<double>(x[w * x_apart + kSign * i]);
      states[w] = Step::combine(states[w], Step::of(value, i));
      y[w * y_apart + kSign * i] = convert_element<T>(Step::result(states[w]));
    }
  }
}

}  // namespace tessera::cpu
