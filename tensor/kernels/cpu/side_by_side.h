#pragma once

/// Several vectors of f32 as one number, for the functions of scalar_math.h that are templates. A CPU that computes several
/// vectors side by side need not wait for the steps of each. The bits are those of the function of one number.

#include <algorithm>
#include <array>
#include <cstdint>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "tessera/tensor/kernels/cpu/direct_map.h"
#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/math/functors_binary.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera::cpu {

#ifdef __AVX2__

namespace detail {

#ifdef __AVX512F__
struct Vector {
  using Floats = __m512;
  static constexpr int kSize = 16;
  static Floats of(float x) { return _mm512_set1_ps(x); }
  static Floats load(const float* x) { return _mm512_loadu_ps(x); }
  static void store(Floats x, float* y) { _mm512_storeu_ps(y, x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats absolute(Floats x) { return _mm512_abs_ps(x); }
  // The second operand where one is NaN.
  static Floats minimum(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  static Floats maximum(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Floats copysign(Floats x, Floats sign) {
    return _mm512_or_ps(absolute(x), _mm512_and_ps(of(-0.0f), sign));
  }
  static Floats if_less(Floats a, Floats b, Floats then, Floats other) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), other, then);
  }
  // One instruction, which rounds once, as the two steps of one number do.
  static Floats times_power(Floats y, Floats shifted) {
    return _mm512_scalef_ps(y, shifted - scalar::detail::kShifter);
  }
  static Floats times_low_power(Floats y, Floats shifted) { return times_power(y, shifted); }
};
#else
struct Vector {
  using Floats = __m256;
  static constexpr int kSize = 8;
  static Floats of(float x) { return _mm256_set1_ps(x); }
  static Floats load(const float* x) { return _mm256_loadu_ps(x); }
  static void store(Floats x, float* y) { _mm256_storeu_ps(y, x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats absolute(Floats x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  // The second operand where one is NaN.
  static Floats minimum(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  static Floats maximum(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Floats copysign(Floats x, Floats sign) {
    return _mm256_or_ps(absolute(x), _mm256_and_ps(of(-0.0f), sign));
  }
  static Floats if_less(Floats a, Floats b, Floats then, Floats other) {
    return _mm256_blendv_ps(other, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static Floats times_power(Floats y, Floats shifted) {
    const __m256i exponent = _mm256_sub_epi32(_mm256_castps_si256(shifted),
                                              _mm256_castps_si256(of(scalar::detail::kShifter)));
    const __m256i half = _mm256_srai_epi32(exponent, 1);
    return y * power_of_two(half) * power_of_two(_mm256_sub_epi32(exponent, half));
  }
  static Floats times_low_power(Floats y, Floats shifted) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    const __m256i factor = _mm256_add_epi32(exponent, _mm256_set1_epi32(191 << 23));
    return y * _mm256_castsi256_ps(factor) * 0x1p-64f;
  }

 private:
  static Floats power_of_two(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};
#endif

/// kCount vectors. Operators and functions are those of scalar_math.h, found by their argument.
template <int kCount>
struct SideBySide {
  static constexpr int kVectors = kCount;
  Vector::Floats part[kCount];

  SideBySide() = default;
  // Not explicit: formulas contain numbers.
  SideBySide(float x) { std::fill_n(part, kCount, Vector::of(x)); }
  explicit SideBySide(const float* x) {
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) part[i] = Vector::load(x + i * Vector::kSize);
  }
  void store(float* y) const {
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) Vector::store(part[i], y + i * Vector::kSize);
  }

  template <class F, class... Operands>
  static SideBySide each(const F& f, const Operands&... x) {
    SideBySide y;
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) y.part[i] = f(x.part[i]...);
    return y;
  }
  friend SideBySide operator+(const SideBySide& a, const SideBySide& b) {
    return each([](auto x, auto y) { return x + y; }, a, b);
  }
  friend SideBySide operator-(const SideBySide& a, const SideBySide& b) {
    return each([](auto x, auto y) { return x - y; }, a, b);
  }
  friend SideBySide operator*(const SideBySide& a, const SideBySide& b) {
    return each([](auto x, auto y) { return x * y; }, a, b);
  }
  friend SideBySide operator/(const SideBySide& a, const SideBySide& b) {
    return each([](auto x, auto y) { return x / y; }, a, b);
  }
  friend SideBySide operator-(const SideBySide& x) {
    return each([](auto x) { return -x; }, x);
  }
  friend SideBySide mul(const SideBySide& a, const SideBySide& b) { return a * b; }
  friend SideBySide quotient(const SideBySide& a, const SideBySide& b) { return a / b; }
  friend SideBySide fma(const SideBySide& a, const SideBySide& b, const SideBySide& c) {
    return each(Vector::fma, a, b, c);
  }
  friend SideBySide absolute(const SideBySide& x) { return each(Vector::absolute, x); }
  friend SideBySide at_most(const SideBySide& x, const SideBySide& limit) {
    return each(Vector::minimum, limit, x);
  }
  friend SideBySide at_least(const SideBySide& x, const SideBySide& limit) {
    return each(Vector::maximum, limit, x);
  }
  friend SideBySide copysign(const SideBySide& x, const SideBySide& sign) {
    return each(Vector::copysign, x, sign);
  }
  friend SideBySide if_less(const SideBySide& a, const SideBySide& b, const SideBySide& then,
                            const SideBySide& other) {
    return each(Vector::if_less, a, b, then, other);
  }
  friend SideBySide times_power(const SideBySide& y, const SideBySide& shifted) {
    return each(Vector::times_power, y, shifted);
  }
  friend SideBySide times_low_power(const SideBySide& y, const SideBySide& shifted) {
    return each(Vector::times_low_power, y, shifted);
  }
  friend SideBySide exp(const SideBySide& x) { return scalar::detail::exp_in_f32(x); }
  friend SideBySide tanh(const SideBySide& x) { return scalar::detail::tanh_in_f32(x); }
  friend SideBySide erf(const SideBySide& x) { return scalar::detail::erf_in_f32(x); }
  friend scalar::Normal<SideBySide> normal(const SideBySide& x) {
    return scalar::detail::normal_in_f32(x);
  }
};

}  // namespace detail

#endif

/// y[i] = f(x[i]...), i < n, where f takes numbers side by side. y may be one of the operands.
template <class F, class... Pointers>
[[gnu::flatten]] void run_side_by_side(std::int64_t n, const F& f, float* y, const Pointers*... x) {
#ifdef __AVX2__
  constexpr std::int64_t kOne = detail::Vector::kSize, kMost = 4 * kOne;
  std::int64_t i = 0;
  for (; i + kMost <= n; i += kMost) f(detail::SideBySide<4>(x + i)...).store(y + i);
  for (; i + kOne <= n; i += kOne) f(detail::SideBySide<1>(x + i)...).store(y + i);
  if (i == n) return;
  const auto rest = [&](const float* from) {
    std::array<float, kOne> values = {};
    std::copy_n(from + i, n - i, values.begin());
    return detail::SideBySide<1>(values.data());
  };
  std::array<float, kOne> last;
  f(rest(x)...).store(last.data());
  std::copy_n(last.begin(), n - i, y + i);
#else
  for (std::int64_t i = 0; i < n; ++i) y[i] = f(x[i]...);
#endif
}

template <class F>
concept RunsSideBySide =
    kIsOneOf<F, functors::Exp, functors::Tanh, functors::Sigmoid, functors::Erf, functors::Gelu,
             functors::GeluTanh, functors::Silu, functors::GeluBackward, functors::GeluTanhBackward,
             functors::SiluBackward>;

template <RunsSideBySide F>
void run(std::int64_t n, F f, const float* x, float* y) {
  run_side_by_side(n, f, y, x);
}
template <RunsSideBySide F>
void run(std::int64_t n, F f, const float* dy, const float* x, float* y) {
  run_side_by_side(n, f, y, dy, x);
}

}  // namespace tessera::cpu
