#pragma once

/// More elementary functions of one and two numbers. In f32 they are computed in f64 and rounded
/// once, with the same bits on CPU and GPU (see scalar_wide.h); in f64 the last bit may differ.

#include <cmath>
#include <limits>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/math/scalar_trig.h"
#include "tessera/tensor/kernels/math/scalar_wide.h"

namespace tessera::scalar {

namespace detail {

/// `x` limited to [-bound, bound]; NaN stays.
TESSERA_HD double limited(double x, double bound) {
  const double upper = x > bound ? bound : x;
  return upper < -bound ? -bound : upper;
}

/// `near` where the magnitude is so small that `far` cancels.
TESSERA_HD float odd(float x, double magnitude, double near, double far) {
  return static_cast<float>(::copysign(magnitude < 0.01 ? near : far, static_cast<double>(x)));
}

}  // namespace detail

/// x to the power y; signs, zeros and infinities as in IEEE's pow.
TESSERA_HD float pow(float x, float y) {
  const double base = x, exponent = y, magnitude = ::fabs(base);
  // Beyond the bounds the result is inf or 0.
  const double size = wide::exp(detail::limited(exponent * wide::log(magnitude), 200.0));
  const bool whole = ::rint(exponent) == exponent;
  const double half = 0.5 * exponent;
  const double power = whole & (::rint(half) != half) ? ::copysign(size, base) : size;
  const bool real = whole | !(base < 0.0) | (magnitude > std::numeric_limits<float>::max());
  const bool one = (exponent == 0.0) | (base == 1.0) |
                   ((base == -1.0) & (::fabs(exponent) > std::numeric_limits<float>::max()));
  const double regular = real ? power : std::numeric_limits<double>::quiet_NaN();
  return static_cast<float>(one ? 1.0 : regular);
}

TESSERA_HD float log2(float x) { return static_cast<float>(wide::log(x) * wide::kLog2E); }
TESSERA_HD double log2(double x) { return ::log2(x); }

TESSERA_HD float log10(float x) {
  return static_cast<float>(wide::log(x) * 0.43429448190325182765);
}
TESSERA_HD double log10(double x) { return ::log10(x); }

TESSERA_HD float exp2(float x) { return static_cast<float>(wide::exp2(detail::limited(x, 200.0))); }
TESSERA_HD double exp2(double x) { return ::exp2(x); }

/// In radians; NaN for infinite angles. The sign of 0 is kept.
TESSERA_HD float tan(float x) {
  const bool finite = x - x == 0.0f;
  const SinCos<double> angle = detail::sincos_wide(finite ? x : 0.0f);
  const auto y = static_cast<float>(angle.sin / angle.cos);
  return !finite ? std::numeric_limits<float>::quiet_NaN() : x == 0.0f ? x : y;
}
TESSERA_HD double tan(double x) { return ::tan(x); }

TESSERA_HD float atan2(float y, float x) { return static_cast<float>(wide::atan2(y, x)); }
TESSERA_HD double atan2(double y, double x) { return ::atan2(y, x); }

TESSERA_HD float atan(float x) { return static_cast<float>(wide::atan2(x, 1.0)); }
TESSERA_HD double atan(double x) { return ::atan(x); }

/// asin and acos are NaN beyond [-1, 1].
TESSERA_HD float asin(float x) {
  const double sine = x;
  return static_cast<float>(wide::atan2(sine, ::sqrt((1.0 - sine) * (1.0 + sine))));
}
TESSERA_HD double asin(double x) { return ::asin(x); }
TESSERA_HD float acos(float x) {
  const double cosine = x;
  return static_cast<float>(wide::atan2(::sqrt((1.0 - cosine) * (1.0 + cosine)), cosine));
}
TESSERA_HD double acos(double x) { return ::acos(x); }

TESSERA_HD float sinh(float x) {
  const double a = detail::limited(::fabs(static_cast<double>(x)), 100.0);
  const double e = wide::exp(a), z = a * a;
  const double near = fma(mul(a, z), polynomial(z, 1.0 / 120, 1.0 / 6), a);
  return detail::odd(x, a, near, 0.5 * (e - 1.0 / e));
}
TESSERA_HD double sinh(double x) { return ::sinh(x); }
TESSERA_HD float cosh(float x) {
  const double e = wide::exp(detail::limited(x, 100.0));
  return static_cast<float>(0.5 * (e + 1.0 / e));
}
TESSERA_HD double cosh(double x) { return ::cosh(x); }

TESSERA_HD float asinh(float x) {
  const double a = ::fabs(static_cast<double>(x)), z = a * a;
  const double near = fma(mul(a, z), polynomial(z, 3.0 / 40, -1.0 / 6), a);
  return detail::odd(x, a, near, wide::log(a + ::sqrt(fma(a, a, 1.0))));
}
TESSERA_HD double asinh(double x) { return ::asinh(x); }
/// NaN below 1.
TESSERA_HD float acosh(float x) {
  const double cosine = x;
  const double y = wide::log(cosine + ::sqrt((cosine - 1.0) * (cosine + 1.0)));
  return x < 1.0f ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(y);
}
TESSERA_HD double acosh(double x) { return ::acosh(x); }
/// NaN beyond [-1, 1].
TESSERA_HD float atanh(float x) {
  const double a = ::fabs(static_cast<double>(x)), z = a * a;
  const double near = fma(mul(a, z), polynomial(z, 1.0 / 5, 1.0 / 3), a);
  return detail::odd(x, a, near, 0.5 * wide::log((1.0 + a) / (1.0 - a)));
}
TESSERA_HD double atanh(double x) { return ::atanh(x); }

/// sin(pi x) / (pi x), and 1 at 0: exactly 0 at the other integers. NaN for infinite x.
TESSERA_HD double sinc(double x) {
  const double a = ::fabs(x), turns = 0.5 * a;
  const bool finite = a - a == 0.0;
  const double sine = sincos_turns(finite ? turns - ::floor(turns) : 0.0).sin;
  const double y = finite ? sine / (wide::kPi * a) : std::numeric_limits<double>::quiet_NaN();
  return a == 0.0 ? 1.0 : y;
}
TESSERA_HD float sinc(float x) { return static_cast<float>(sinc(static_cast<double>(x))); }

/// sqrt(a^2 + b^2) without overflow; inf if either is infinite, also beside NaN.
TESSERA_HD float hypot(float a, float b) {
  const double wide_a = a, wide_b = b;
  const auto y = static_cast<float>(::sqrt(fma(wide_a, wide_a, wide_b * wide_b)));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return ::fabsf(a) == kInfinity || ::fabsf(b) == kInfinity ? kInfinity : y;
}
TESSERA_HD double hypot(double a, double b) { return ::hypot(a, b); }

/// log(e^a + e^b) and log2(2^a + 2^b), without overflow.
template <class T>
TESSERA_HD T logaddexp(T a, T b) {
  const T larger = a > b || a != a ? a : b;
  const T distance = a > b ? a - b : b - a;
  return a == b ? a + T(wide::kLog2) : larger + log1p(exp(-distance));
}
template <class T>
TESSERA_HD T logaddexp2(T a, T b) {
  const T larger = a > b || a != a ? a : b;
  const T distance = a > b ? a - b : b - a;
  return a == b ? a + T(1) : larger + mul(log1p(exp2(-distance)), T(wide::kLog2E));
}

/// x log(y), and 0 where x is 0; NaN where y is.
template <class T>
TESSERA_HD T xlogy(T x, T y) {
  const T product = x * log(y);
  return y != y ? y : x == T(0) ? T(0) : product;
}

}  // namespace tessera::scalar
