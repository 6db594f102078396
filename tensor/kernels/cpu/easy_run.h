#pragma once

/// Functions of many f32 numbers that have a short way without branches for almost all of them: sin, cos, log,
/// powers and remainders, with the bits of the long way.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/math/functors_binary.h"
#include "tessera/tensor/kernels/math/scalar_elementary.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/math/scalar_trig.h"
#include "tessera/tensor/kernels/math/scalar_wide.h"

namespace tessera::cpu {

namespace detail {

/// Where all of some numbers are easy, y[i] = easy(x[i]...), else any(x[i]...), i < n. y may be one of the operands.
template <class IsEasy, class Easy, class Any, class... Pointers>
void easy_run(std::int64_t n, float* y, const IsEasy& is_easy, const Easy& easy, const Any& any,
              const Pointers*... x) {
  constexpr std::int64_t kStep = 512;
  for (std::int64_t begin = 0; begin < n; begin += kStep) {
    const std::int64_t end = std::min(n, begin + kStep);
    std::int32_t hard = 0;
    for (std::int64_t i = begin; i < end; ++i) hard |= is_easy(x[i]...) ? 0 : 1;
    if (hard == 0) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) y[i] = easy(x[i]...);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) y[i] = any(x[i]...);
    }
  }
}

/// Positive, normal and below inf.
inline bool is_normal(float x) {
  return (x >= std::numeric_limits<float>::min()) & (x <= std::numeric_limits<float>::max());
}
inline bool is_small_angle(float x) { return std::abs(x) < scalar::detail::kLargeAngle; }

/// |a| / |b| rounded down, and what is left of |a|: both exact.
struct WholeDivision {
  float quotient;
  float rest;
};

/// Whether divide_whole() serves: b is far from the ends of f32's range, the quotient below 2^19.
inline bool divides_easily(float a, float b) {
  const float size = std::abs(b);
  return (size > 0x1p-100f) & (size < 0x1p100f) & (std::abs(a) < 0x1p19f * size);
}
/// The rounded quotient, off by less than 1/4, is rounded to an integer: the right one or the next. The sign of the rest,
/// which is exact in the fma, tells which.
inline WholeDivision divide_whole(float a, float b) {
  const float numerator = std::abs(a), divisor = std::abs(b);
  const float near = ::rintf(numerator / divisor);
  const float rest = scalar::fma(-near, divisor, numerator);
  const float down = rest < 0.0f ? near - 1.0f : near;
  return {down, scalar::fma(-down, divisor, numerator)};
}

template <class Easy, class Hard>
void division_run(std::int64_t n, const float* a, const float* b, float* y, const Easy& easy,
                  const Hard& hard) {
  const auto any = [&](float x, float by) {
    return divides_easily(x, by) ? easy(x, by) : hard(x, by);
  };
  easy_run(n, y, divides_easily, easy, any, a, b);
}

}  // namespace detail

inline void run(std::int64_t n, functors::Sin any, const float* x, float* y) {
  detail::easy_run(
      n, y, detail::is_small_angle, [](float a) { return scalar::sin_small(a); }, any, x);
}
inline void run(std::int64_t n, functors::Cos any, const float* x, float* y) {
  detail::easy_run(
      n, y, detail::is_small_angle, [](float a) { return scalar::cos_small(a); }, any, x);
}
inline void run(std::int64_t n, functors::Log any, const float* x, float* y) {
  detail::easy_run(
      n, y, detail::is_normal, [](float a) { return scalar::detail::log_of_normal(a, 0.0f); }, any,
      x);
}
inline void run(std::int64_t n, functors::Pow any, const float* a, const float* b, float* y) {
  const auto is_easy = [](float x, float power) {
    return detail::is_normal(x) & (std::abs(power) <= std::numeric_limits<float>::max());
  };
  const auto easy = [](float x, float power) {
    const double logarithm = scalar::log_portable(static_cast<double>(x));
    const double size = scalar::detail::limited(static_cast<double>(power) * logarithm, 200.0);
    return static_cast<float>(scalar::wide::exp(size));
  };
  detail::easy_run(n, y, is_easy, easy, any, a, b);
}

inline void run(std::int64_t n, functors::Fmod any, const float* a, const float* b, float* y) {
  const auto easy = [](float x, float by) {
    return std::copysign(detail::divide_whole(x, by).rest, x);
  };
  detail::division_run(n, a, b, y, easy, any);
}
inline void run(std::int64_t n, functors::Remainder any, const float* a, const float* b, float* y) {
  const auto easy = [](float x, float by) {
    const float r = std::copysign(detail::divide_whole(x, by).rest, x);
    return (r != 0.0f) & ((r < 0.0f) != (by < 0.0f)) ? r + by : r;
  };
  detail::division_run(n, a, b, y, easy, any);
}
inline void run(std::int64_t n, functors::FloorDivide any, const float* a, const float* b,
                float* y) {
  const auto easy = [](float x, float by) {
    const detail::WholeDivision whole = detail::divide_whole(x, by);
    const float up = (whole.rest != 0.0f) & ((x < 0.0f) != (by < 0.0f)) ? 1.0f : 0.0f;
    return std::copysign(whole.quotient + up, x) * std::copysign(1.0f, by);
  };
  detail::division_run(n, a, b, y, easy, any);
}

}  // namespace tessera::cpu
