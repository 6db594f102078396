#pragma once

/// Special functions of one number: the complement and the inverse of the error function, and the
/// gamma function's family. In f32 all but erfc are computed in f64 and rounded once; in f64 the
/// last bits may differ between CPU and GPU.
///
/// The polynomials of erfinv are our own fit.

#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/math/scalar_trig.h"
#include "tessera/tensor/kernels/math/scalar_wide.h"

namespace tessera::scalar {

/// 1 - erf(x), within 5 ulp also where it is small.
TESSERA_HD float erfc(float x) {
  // Twice the tail of the normal distribution at -sqrt(2) x, corrected for the rounding error of
  // the product.
  const float root = 1.41421354f, root_error = 2.42032e-8f;
  const float z = -x * root;
  const float lost = fma(-x, root_error, fma(-x, root, -z));
  const Normal<float> at = normal(z);
  const float inner = z < -20.0f || z > 20.0f ? 0.0f : lost;
  return 2.0f * fma(inner, at.density, at.cdf);
}
TESSERA_HD double erfc(double x) { return ::erfc(x); }

namespace detail {

/// The inverse of erf within 1e-8 of its value, for |x| < 1.
TESSERA_HD double erfinv_start(double x) {
  const double w = -wide::log((1.0 - x) * (1.0 + x));
  const double centre = w - 2.5, tail = ::sqrt(w) - 4.125;
  const double near = polynomial(
      centre, -2.1203565131819004e-11, 1.2302888973120804e-10, 8.327000821030813e-10,
      -1.0854397093112377e-8, 1.3691496015199152e-8, 4.7864482434002713e-7, -3.4171152327450104e-6,
      -4.9958814487600595e-6, 0.00021825064939995002, -0.0012527080836222809,
      -0.0041773178101400348, 0.24664027678526775, 1.5014093511107919);
  const double far = polynomial(
      tail, -1.1569189912203268e-8, 1.0749996754706615e-8, 2.4320217621196695e-7,
      -5.4161543907773149e-7, -8.8701202550320744e-7, 4.0427945526777021e-6, -5.3463389287302165e-6,
      7.5474221104333246e-6, -1.803039784988506e-5, 3.695026996418168e-5, -8.5341829189759501e-5,
      0.00025707844558948464, -0.00072484523419982396, 0.00096217707182199592, 1.0097698358776095,
      3.9659885103756172);
  return x * (w < 5.0 ? near : far);
}

/// NaN beyond [-1, 1], infinite at both ends.
template <class T>
TESSERA_HD T erfinv_end(T x) {
  const T infinity = std::numeric_limits<T>::infinity();
  return x == T(1) ? infinity : x == T(-1) ? -infinity : std::numeric_limits<T>::quiet_NaN();
}

}  // namespace detail

/// The inverse of erf.
TESSERA_HD float erfinv(float x) {
  const bool inside = ::fabsf(x) < 1.0f;
  const auto y = static_cast<float>(detail::erfinv_start(inside ? x : 0.0f));
  return inside ? y : detail::erfinv_end(x);
}
/// One step of Halley's method, on erfc where erf is so close to 1 that it says little.
TESSERA_HD double erfinv(double x) {
  if (!(::fabs(x) < 1.0)) return detail::erfinv_end(x);
  const double y = detail::erfinv_start(x), a = ::fabs(x);
  const double beyond = (1.0 - a) - ::erfc(::fabs(y));
  const double excess = a < 0.5 ? ::erf(y) - x : x < 0.0 ? -beyond : beyond;
  const double step = excess / (1.12837916709551257390 * ::exp(-y * y));
  return y - step / fma(y, step, 1.0);
}

/// log |gamma(x)|; inf at 0 and at negative integers.
TESSERA_HD double lgamma(double x) {
#ifdef __CUDA_ARCH__
  return ::lgamma(x);
#else
  int sign = 0;  // lgamma() writes to a variable that all threads share
  return ::lgamma_r(x, &sign);
#endif
}
TESSERA_HD float lgamma(float x) { return static_cast<float>(lgamma(static_cast<double>(x))); }

namespace detail {

/// The derivative of lgamma for x > 0: from x + 10 back by its recurrence, where its asymptotic
/// series has converged.
TESSERA_HD double digamma_positive(double x) {
  double sum = 0.0;
  TESSERA_KEEP_LOOP
  for (int k = 9; k >= 0; --k) sum += 1.0 / (x + static_cast<double>(k));
  const double y = x + 10.0, z = 1.0 / (y * y);
  const double series = polynomial(z, 1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252,
                                   -1.0 / 120, 1.0 / 12);
  return wide::log(y) - 0.5 / y - mul(z, series) - sum;
}

/// pi / tan(pi x) for finite x; NaN at integers.
TESSERA_HD double cotangent_of_half_turns(double x) {
  const double rest = x - ::rint(x), a = ::fabs(rest);
  const bool steep = a > 0.25;
  const SinCos<double> angle = sincos_octant(wide::kPi * (steep ? 0.5 - a : a));
  const double y = steep ? angle.sin / angle.cos : angle.cos / angle.sin;
  return a == 0.0 ? std::numeric_limits<double>::quiet_NaN() : ::copysign(wide::kPi * y, rest);
}

}  // namespace detail

/// The derivative of lgamma; NaN at negative integers, -inf at 0 and inf at -0.
TESSERA_HD double digamma(double x) {
  if (x == 0.0) return ::copysign(std::numeric_limits<double>::infinity(), -x);
  if (x > 0.0) return detail::digamma_positive(x);
  if (!(x - x == 0.0)) return std::numeric_limits<double>::quiet_NaN();
  return detail::digamma_positive(1.0 - x) - detail::cotangent_of_half_turns(x);
}
TESSERA_HD float digamma(float x) { return static_cast<float>(digamma(static_cast<double>(x))); }

namespace detail {

/// x^-n for n > 0.
TESSERA_HD double inverse_power(double x, int n) {
  double base = x, power = 1.0;
  TESSERA_KEEP_LOOP
  for (int rest = n; rest > 0; rest >>= 1) {
    if ((rest & 1) != 0) power *= base;
    base *= base;
  }
  return 1.0 / power;
}

/// Hurwitz's zeta function, the sum of (q + k)^-s over k >= 0, for whole s >= 2 and q > 0: ten terms,
/// and the rest by the formula of Euler and Maclaurin.
TESSERA_HD double hurwitz_zeta(int s, double q) {
  double sum = 0.0;
  TESSERA_KEEP_LOOP
  for (int k = 9; k >= 0; --k) sum += inverse_power(q + static_cast<double>(k), s);
  const double a = q + 10.0, last = inverse_power(a, s), z = 1.0 / (a * a);
  // Bernoulli numbers B_2j divided by (2j)!.
  static constexpr double kCoefficients[] = {1.0 / 12,
                                             -1.0 / 720,
                                             1.0 / 30240,
                                             -1.0 / 1209600,
                                             1.0 / 47900160,
                                             -691.0 / 1307674368000.0,
                                             1.0 / 74724249600.0,
                                             -3617.0 / 10670622842880000.0};
  double factor = static_cast<double>(s) / a, tail = 0.0;
  TESSERA_KEEP_LOOP
  for (int j = 0; j < 8; ++j) {
    tail = fma(kCoefficients[j], factor, tail);
    const auto next = static_cast<double>(s + 2 * j + 1);
    factor *= next * (next + 1.0) * z;
  }
  return fma(last, a / static_cast<double>(s - 1) + 0.5 + tail, sum);
}

}  // namespace detail

/// The derivative of digamma of order n, a whole number of at least 1. Its poles at 0 and at
/// negative integers are infinite.
TESSERA_HD double polygamma(double n, double x) {
  const int s = static_cast<int>(n) + 1;
  double sum = 0.0, q = x > 0.0 ? x : x - ::floor(x);
  // For negative x: the sum of 1 / (x + k)^s over all integers k, in two halves, minus the terms with
  // k < 0. The three calls are one in a loop, because the function is long.
  TESSERA_KEEP_LOOP
  for (int part = 0; part < (x > 0.0 ? 1 : 3); ++part) {
    const double zeta = detail::hurwitz_zeta(s, q);
    sum += part != 0 && (part == 1) == ((s & 1) != 0) ? -zeta : zeta;
    q = part == 0 ? ::ceil(x) - x : 1.0 - x;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (x <= 0.0 && x == ::floor(x)) sum = kInfinity;
  if (!(x - x == 0.0)) sum = x > 0.0 ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  TESSERA_KEEP_LOOP
  for (int k = 2; k < s; ++k) sum *= static_cast<double>(k);
  return (s & 1) != 0 ? -sum : sum;
}

}  // namespace tessera::scalar
