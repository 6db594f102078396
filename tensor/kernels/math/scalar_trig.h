#pragma once

/// sin and cos of one number. In f32 CPU and GPU give the same bits, see scalar_math.h; in f64 the
/// last bit may differ.
///
/// Polynomials: in f32 from Cephes (S. Moshier), in f64 from fdlibm (Sun); those in f64 for f32 are our own
/// fits.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera::scalar {

template <class T>
struct SinCos {
  T sin;
  T cos;
};

namespace detail {

/// sin and cos of an angle in [-pi/4, pi/4].
TESSERA_HD SinCos<float> sincos_octant(float a) {
  const float z = a * a;
  const float s = polynomial(z, -1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f);
  const float c =
      polynomial(z, 2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f);
  return {fma(s * z, a, a), fma(c, z * z, fma(-0.5f, z, 1.0f))};
}
TESSERA_HD SinCos<double> sincos_octant(double a) {
  const double z = a * a;
  const double s = polynomial(z, 1.58969099521155010221e-10, -2.50507602534068634195e-08,
                              2.75573137070700676789e-06, -1.98412698298579493134e-04,
                              8.33333333332248946124e-03, -1.66666666666666324348e-01);
  const double c = polynomial(z, -1.13596475577881948265e-11, 2.08757232129817482790e-09,
                              -2.75573143513906633035e-07, 2.48015872894767294178e-05,
                              -1.38888888888741095749e-03, 4.16666666666666019037e-02);
  return {fma(s * z, a, a), fma(c, z * z, fma(-0.5, z, 1.0))};
}

/// sin and cos of the angle plus `quarters` quarter turns. Without branches, for loops in vectors.
template <class T>
TESSERA_HD SinCos<T> turned(SinCos<T> angle, std::int32_t quarters) {
  const bool is_odd = (quarters & 1) != 0;
  const T sin = is_odd ? angle.cos : angle.sin, cos = is_odd ? angle.sin : angle.cos;
  return {(quarters & 2) != 0 ? -sin : sin, ((quarters + 1) & 2) != 0 ? -cos : cos};
}

/// An angle as a number of quarter turns, modulo 4, and a rest in [-pi/4, pi/4], in f64.
struct Reduced {
  double rest;
  std::uint64_t quarters;  ///< as wide as the rest, for loops in vectors
};

/// For |x| < 2^30. pi/2 is subtracted in two parts: the first product is exact in the fma, so that
/// cancellation leaves all bits of the rest.
TESSERA_HD Reduced reduce_small(float x) {
  const double angle = x;
  // Adding 1.5 * 2^52 rounds to an integer, which is then in the low bits.
  const double shifter = 6755399441055744.0;
  const double shifted = fma(angle, 0.63661977236758138, shifter);
  const double n = shifted - shifter;
  const double first = fma(n, -1.5707963267948966, angle);
  return {fma(n, -6.123233995736766e-17, first), std::bit_cast<std::uint64_t>(shifted)};
}

/// 32 bits of 2/pi, from bit `first` after the binary point on, 1 <= first <= 193.
TESSERA_HD std::uint32_t bits_of_two_over_pi(int first) {
  static constexpr std::uint32_t kWords[] = {0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
                                             0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u};
  const int word = (first - 1) / 32, shift = (first - 1) % 32;
  const std::uint64_t both = (std::uint64_t{kWords[word]} << 32) | kWords[word + 1];
  return static_cast<std::uint32_t>((both << shift) >> 32);
}

/// For finite |x| >= 2^30 (M. Payne and R. Hanek, "Radian reduction for trigonometric functions",
/// 1983). x is an integer of 24 bits times 2^e. Bits of 2/pi that contribute multiples of 4 quarter
/// turns are skipped, and the next 96 bits make the product exact to 2^-70.
TESSERA_HD Reduced reduce_large(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint64_t mantissa = (bits & 0x7fffffu) | 0x800000u;
  const int first = static_cast<int>((bits >> 23) & 0xffu) - 150 - 1;  // e - 1
  const std::uint64_t low = mantissa * bits_of_two_over_pi(first + 64),
                      middle = mantissa * bits_of_two_over_pi(first + 32) + (low >> 32),
                      high = mantissa * bits_of_two_over_pi(first) + (middle >> 32);
  // Quarter turns in 2 bits, their fraction in 62.
  const std::uint64_t product = (high << 32) | (middle & 0xffffffffu);
  const std::uint64_t quarters = (product + (std::uint64_t{1} << 61)) >> 62;
  const auto fraction = static_cast<std::int64_t>(product - (quarters << 62));
  const double rest = static_cast<double>(fraction) * 0x1p-62 * 1.5707963267948966;
  return (bits >> 31) != 0 ? Reduced{-rest, 0u - quarters} : Reduced{rest, quarters};
}

/// Below it angles are reduced without branches.
inline constexpr float kLargeAngle = 1073741824.0f;

TESSERA_HD Reduced reduce(float x) {
  return ::fabsf(x) < kLargeAngle ? reduce_small(x) : reduce_large(x);
}
TESSERA_HD SinCos<double> sincos_wide(float x) {
  const Reduced reduced = reduce(x);
  return turned(sincos_octant(reduced.rest), static_cast<std::int32_t>(reduced.quarters & 3u));
}

/// The sine of the rest plus `quarters` quarter turns: in f64 with an error of 5e-11, which is little beside the rounding
/// to f32. Keeps the sign of 0.
TESSERA_HD float sine_of(double rest, std::uint64_t quarters) {
  const double z = rest * rest;
  const double s = polynomial(z, 2.7182743967543592e-06, -1.9839330987241594e-04,
                              8.333329374083232e-03, -1.6666666641526393e-01);
  const double c = polynomial(z, 2.4390041696995068e-05, -1.3886759551199111e-03,
                              4.166662319419705e-02, -4.999999972400464e-01);
  const bool is_odd = (quarters & 1u) != 0;
  const double y = mul(is_odd ? 1.0 : rest, fma(is_odd ? c : s, z, 1.0));
  const std::uint64_t sign = (quarters & 2u) << 62;
  return static_cast<float>(std::bit_cast<double>(std::bit_cast<std::uint64_t>(y) ^ sign));
}

}  // namespace detail

/// sin and cos of angles with |x| < detail::kLargeAngle, the same bits without branches.
TESSERA_HD float sin_small(float x) {
  const detail::Reduced reduced = detail::reduce_small(x);
  return detail::sine_of(reduced.rest, reduced.quarters);
}
TESSERA_HD float cos_small(float x) {
  const detail::Reduced reduced = detail::reduce_small(x);
  return detail::sine_of(reduced.rest, reduced.quarters + 1);
}

/// In radians; f32 is computed in f64 and rounded once, within 0.501 ulp. NaN for infinite angles. The
/// sign of 0 is kept.
TESSERA_HD float sin(float x) {
  const bool finite = x - x == 0.0f;
  const detail::Reduced reduced = detail::reduce(finite ? x : 0.0f);
  const float y = detail::sine_of(reduced.rest, reduced.quarters);
  return finite ? y : std::numeric_limits<float>::quiet_NaN();
}
TESSERA_HD double sin(double x) { return ::sin(x); }
TESSERA_HD float cos(float x) {
  const bool finite = x - x == 0.0f;
  const detail::Reduced reduced = detail::reduce(finite ? x : 0.0f);
  const float y = detail::sine_of(reduced.rest, reduced.quarters + 1);
  return finite ? y : std::numeric_limits<float>::quiet_NaN();
}
TESSERA_HD double cos(double x) { return ::cos(x); }

/// sin and cos of `turns` full turns, 0 <= turns < 1: the reduction to an octant is exact.
template <class T>
TESSERA_HD SinCos<T> sincos_turns(T turns) {
  const T quarters = turns * T(4);
  const auto nearest = static_cast<std::int32_t>(quarters + T(0.5));
  return detail::turned(
      detail::sincos_octant((quarters - static_cast<T>(nearest)) * T(1.57079632679489661923)),
      nearest);
}

}  // namespace tessera::scalar
