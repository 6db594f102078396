#pragma once

/// Elementary functions in f64 with the same bits on CPU and GPU, accurate to about 1e-14: a
/// function of f32 is computed with them and rounded once. Without branches, as scalar_math.h.
///
/// Polynomials: arctangent from fdlibm (Sun); the exponential is Taylor's.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera::scalar::wide {

inline constexpr double kPi = 3.14159265358979323846;
inline constexpr double kLog2 = 0.69314718055994530942;   ///< log(2)
inline constexpr double kLog2E = 1.44269504088896340736;  ///< log2(e)

/// 2^n e^r for |r| <= log(2) / 2 and whole |n| <= 1022.
TESSERA_HD double scaled_exp(double n, double r) {
  const double p = polynomial(r, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                              1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  // Adding 1.5 * 2^52 puts the integer into the low bits.
  const auto exponent = std::bit_cast<std::uint64_t>(n + 6755399441055744.0);
  return p * std::bit_cast<double>((exponent + 1023u) << 52);
}

/// e^x for |x| <= 700.
TESSERA_HD double exp(double x) {
  const double n = ::rint(x * kLog2E);
  // log(2) in two parts, of which the first has few bits, so that its product is exact.
  const double r = fma(n, -1.90821492927058770002e-10, fma(n, -6.93147180369123816490e-01, x));
  return scaled_exp(n, r);
}

/// 2^x for |x| <= 1000.
TESSERA_HD double exp2(double x) {
  const double n = ::rint(x);
  return scaled_exp(n, (x - n) * kLog2);
}

/// Natural logarithm; -inf for 0, NaN below 0. Subnormal numbers are out of its range.
TESSERA_HD double log(double x) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool regular = x > 0.0 && x < kInfinity;
  const double y = log_portable(regular ? x : 1.0);
  const double end = x == 0.0 ? -kInfinity : std::numeric_limits<double>::quiet_NaN();
  return regular ? y : x == kInfinity ? x : end;
}

/// The angle of the point (x, y), in [-pi, pi]: as IEEE's atan2 for values and ratios that are not
/// subnormal.
TESSERA_HD double atan2(double y, double x) {
  const double up = ::fabs(y), across = ::fabs(x);
  const double large = up > across ? up : across, small = up > across ? across : up;
  const double ratio = large == small ? (large == 0.0 ? 0.0 : 1.0) : small / large;
  // Half an octant: atan(t) = pi/4 + atan((t - 1) / (t + 1)).
  const bool upper = ratio > 0.41421356237309504880;
  const double t = upper ? (ratio - 1.0) / (ratio + 1.0) : ratio;
  const double z = t * t;
  const double p = polynomial(
      z, 1.62858201153657823623e-02, -3.65315727442169155270e-02, 4.97687799461593236017e-02,
      -5.83357013379057348645e-02, 6.66107313738753120669e-02, -7.69187620504482999495e-02,
      9.09088713343650656196e-02, -1.11111104054623557880e-01, 1.42857142725034663711e-01,
      -1.99999999998764832476e-01, 3.33333333333329318027e-01);
  const double near = fma(-mul(t, z), p, t);
  const double octant = upper ? 0.25 * kPi + near : near;
  const double quadrant = up > across ? 0.5 * kPi - octant : octant;
  const double half = ::copysign(1.0, x) < 0.0 ? kPi - quadrant : quadrant;
  return x != x || y != y ? x + y : ::copysign(half, y);
}

}  // namespace tessera::scalar::wide
