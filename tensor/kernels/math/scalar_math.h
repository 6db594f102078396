#pragma once

/// Elementary functions of one number, with the same bits on CPU and GPU.
///
/// Every step is one IEEE operation or an explicit fma, in a fixed order. None may be contracted:
/// therefore CPU kernels are compiled with -ffp-contract=off, and products that feed a sum are
/// written with fma() or mul(). The f32 functions have no branches, so the compiler vectorizes
/// loops over them, with the same bits as scalar code.
///
/// Polynomials: exp, log and tanh in f32 from Cephes (S. Moshier); log in f64 from fdlibm (Sun);
/// erf and the tail of the normal distribution are our own fits.

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/tensor/host_device.h"

namespace tessera::scalar {

TESSERA_HD float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
TESSERA_HD double fma(double a, double b, double c) { return ::fma(a, b, c); }

/// What an elementary function is computed of: a float, a double, or vectors of floats (cpu/side_by_side.h).
template <class T>
concept Real = std::floating_point<T> || requires {
  T::kVectors;
};

/// NaN stays.
template <std::floating_point T>
TESSERA_HD T at_most(T x, std::type_identity_t<T> limit) {
  return x > limit ? limit : x;
}
template <std::floating_point T>
TESSERA_HD T at_least(T x, std::type_identity_t<T> limit) {
  return x < limit ? limit : x;
}

/// A product that is rounded before it is added to something.
#ifdef __CUDA_ARCH__
TESSERA_HD float mul(float a, float b) { return __fmul_rn(a, b); }
TESSERA_HD double mul(double a, double b) { return __dmul_rn(a, b); }
#else
TESSERA_HD float mul(float a, float b) { return a * b; }
TESSERA_HD double mul(double a, double b) { return a * b; }
#endif

/// a / b, with the same bits, where neither the operands nor the quotient are close to the ends of
/// f32's range (or a is 0): on a GPU without the test for that, which has a branch.
TESSERA_HD float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  const float guess = __fdividef(1.0f, b);  // 0 if b is very large
  const float inverse = fma(guess, fma(-b, guess, 1.0f), guess);
  const float near = a * inverse;
  const float nearer = fma(inverse, fma(-b, near, a), near);
  return fma(inverse, fma(-b, nearer, a), nearer);
#else
  return a / b;
#endif
}

/// c[0] x^(N-1) + ... + c[N-1]. Unrolled at compile time: the compiler would not vectorize around a
/// loop.
template <class T, class... C>
TESSERA_HD T polynomial(T x, std::type_identity_t<T> leading, C... rest) {
  T y = leading;
  ((y = fma(y, x, rest)), ...);
  return y;
}

/// 2^n for n in [-126, 127].
TESSERA_HD float power_of_two(std::int32_t n) {
  return std::bit_cast<float>((static_cast<std::uint32_t>(n) + 127u) << 23);
}

namespace detail {

/// Adding it to a number below 2^22 rounds that to an integer, which is then in the low bits.
inline constexpr float kShifter = 12582912.0f;  // 1.5 * 2^23, 0x4b400000

/// n, from kShifter + n.
TESSERA_HD std::int32_t exponent_of(float shifted) {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - 0x4b400000u);
}
/// y 2^n for n in [-252, 254], from kShifter + n.
TESSERA_HD float times_power(float y, float shifted) {
  // In two steps, because 2^n alone may not be a normal number.
  const std::int32_t exponent = exponent_of(shifted), half = exponent >> 1;
  return mul(y * power_of_two(half), power_of_two(exponent - half));
}

/// The same for n in [-190, 63], where the first factor may be 2^(n + 64).
TESSERA_HD float times_low_power(float y, float shifted) {
  const std::uint32_t factor = (std::bit_cast<std::uint32_t>(shifted) << 23) + (191u << 23);
  return mul(y * std::bit_cast<float>(factor), 0x1p-64f);
}

// e^x = 2^n e^r with |r| <= log(2) / 2, for |x| below 2^22 log(2). Functions and not one that returns a struct, whose
// vectors a compiler keeps in memory.

/// kShifter + n.
template <Real T>
TESSERA_HD T shifted_exponent(T x) {
  return fma(x, 1.44269504088896341f, kShifter);
}
/// e^r - 1.
template <Real T>
TESSERA_HD T expm1_of_rest(T r) {
  const T p = polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                         1.6666665459e-1f, 5.0000001201e-1f);
  return fma(p, r * r, r);
}
/// The same, from x and kShifter + n.
template <Real T>
TESSERA_HD T expm1_of_rest(T x, T shifted) {
  const T n = shifted - kShifter;
  return expm1_of_rest(fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x)));
}

template <Real T>
TESSERA_HD T exp_in_f32(T x) {
  const T bounded = at_least(at_most(x, 89.0f), -104.0f);
  const T shifted = shifted_exponent(bounded);
  return times_power(expm1_of_rest(bounded, shifted) + 1.0f, shifted);
}

}  // namespace detail

/// e^x within 1 ulp. Overflows to inf, underflows gradually to 0.
TESSERA_HD float exp(float x) { return detail::exp_in_f32(x); }
TESSERA_HD double exp(double x) { return ::exp(x); }

namespace detail {

/// log(x / 2^down) for positive normal numbers below inf.
TESSERA_HD float log_of_normal(float x, float down) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  // mantissa in [sqrt(1/2), sqrt(2))
  const std::int32_t exponent = static_cast<std::int32_t>(bits - 0x3f3504f3u) >> 23;
  const auto mantissa = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(exponent) << 23));
  const float e = static_cast<float>(exponent) - down;
  const float f = mantissa - 1.0f;
  const float z = f * f;
  const float p = polynomial(f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f,
                             -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                             2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
  const float small = fma(-0.5f, z, fma(e, -2.12194440e-4f, mul(f * z, p)));
  return fma(e, 0.693359375f, f + small);
}

}  // namespace detail

/// Natural logarithm within 1 ulp; log(0) = -inf, NaN below 0.
TESSERA_HD float log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float y = detail::log_of_normal(tiny ? x * 8388608.0f : x, tiny ? 23.0f : 0.0f);
  const float infinity = std::numeric_limits<float>::infinity();
  const float at_end = x == 0.0f ? -infinity : std::numeric_limits<float>::quiet_NaN();
  const float finite = x > 0.0f ? y : at_end;
  return x == infinity ? x : finite;
}
TESSERA_HD double log(double x) { return ::log(x); }

/// e^x - 1 within 2 ulp, also near 0.
TESSERA_HD float expm1(float x) {
  const float bounded = at_least(at_most(x, 89.0f), -30.0f);
  const float shifted = detail::shifted_exponent(bounded);
  // 2^n (rest + 1) - 1 at half its size, so that 2^n does not overflow.
  const float half = power_of_two(detail::exponent_of(shifted) - 1);
  return 2.0f * fma(detail::expm1_of_rest(bounded, shifted), half, half - 0.5f);
}
TESSERA_HD double expm1(double x) { return ::expm1(x); }

/// log(1 + x) within 2 ulp, also near 0.
TESSERA_HD float log1p(float x) {
  const float u = 1.0f + x;
  const float lost = x - (u - 1.0f);  // rounding error of u
  const float y = log(u) + quotient(lost, u);
  const bool at_end = u == 0.0f || u == std::numeric_limits<float>::infinity();
  return at_end ? log(u) : y;
}
TESSERA_HD double log1p(double x) { return ::log1p(x); }

/// Natural logarithm of a positive normal number, the same bits everywhere.
TESSERA_HD double log_portable(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // The exponent plus 1024, which is not negative: not every CPU shifts and converts signed vectors.
  const std::uint64_t exponent = (bits - 0x3fe6a09e667f3bcdu + (std::uint64_t{1024} << 52)) >> 52;
  const auto mantissa =
      std::bit_cast<double>(bits - (exponent << 52) + (std::uint64_t{1024} << 52));
  // 2^52 plus it, as f64.
  const double e = std::bit_cast<double>(exponent | 0x4330000000000000u) - (0x1p52 + 1024.0);
  const double f = mantissa - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double r = mul(
      z, polynomial(z, 1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                    2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                    6.666666666666735130e-01));
  const double half_square = mul(0.5 * f, f);
  const double low = fma(s, half_square + r, mul(e, 1.90821492927058770002e-10));
  return fma(e, 6.93147180369123816490e-01, f - (half_square - low));
}
TESSERA_HD float log_portable(float x) { return log(x); }

namespace detail {

TESSERA_HD float absolute(float x) { return ::fabsf(x); }
TESSERA_HD float copysign(float x, float sign) { return ::copysignf(x, sign); }
TESSERA_HD float if_less(float a, float b, float then, float other) { return a < b ? then : other; }

template <Real T>
TESSERA_HD T tanh_in_f32(T x) {
  const T a = absolute(x);
  const T z = x * x;
  const T p = polynomial(z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                         1.33314422036e-1f, -3.33332819422e-1f);
  const T near = fma(p * z, x, x);
  const T far = 1.0f - 2.0f / (exp_in_f32(a + a) + 1.0f);
  return copysign(if_less(a, 0.625f, near, far), x);
}

}  // namespace detail

/// Hyperbolic tangent within 2 ulp.
TESSERA_HD float tanh(float x) { return detail::tanh_in_f32(x); }
TESSERA_HD double tanh(double x) { return ::tanh(x); }

/// The standard normal distribution at x: its distribution function and its density.
template <class T>
struct Normal {
  T cdf;
  T density;
};

namespace detail {

template <Real T>
TESSERA_HD Normal<T> normal_in_f32(T x) {
  const T a = at_most(absolute(x), 16.0f);  // beyond it the tail is 0
  // exp(-a^2/2); the square is not rounded before most of it is subtracted.
  const T half = a * -0.5f;
  const T shifted = shifted_exponent(half * a);
  const T n = shifted - kShifter;
  const T r = fma(n, 2.12194440e-4f, fma(half, a, mul(n, -0.693359375f)));
  const T more = expm1_of_rest(r);
  // The tail, divided by exp(-a^2/2). All coefficients are positive, so that no sum loses bits.
  const T above = polynomial(a, 0.003994417842f, 0.03980921581f, 0.180785194f, 0.4349778891f, 0.5f);
  const T below =
      polynomial(a, 0.01001237053f, 0.09979455918f, 0.4630039036f, 1.192310929f, 1.6678406f, 1.0f);
  const T ratio = quotient(above, below);
  const T tail = times_low_power(fma(more, ratio, ratio), shifted);
  const T gauss = times_low_power(more + 1.0f, shifted);
  return {if_less(0.0f, x, 1.0f - tail, tail), gauss * 0.398942280401432678f};
}

}  // namespace detail

/// The distribution function is accurate to 6 ulp, also in the tails, where 1 + erf(x) would
/// cancel. (Less accurate only if exp(-x^2/2) is subnormal: f32 below -12.5, f64 below -37.)
TESSERA_HD Normal<float> normal(float x) { return detail::normal_in_f32(x); }
TESSERA_HD Normal<double> normal(double x) {
  // erfc at z = -x / sqrt(2), then one step along its derivative for the rounding error of z.
  const double root = 0.707106781186547573, root_error = -4.833646656726458e-17;
  const double z = -x * root;
  const double lost = fma(-x, root, -z) - x * root_error;
  const double gauss = ::exp(-0.5 * x * x);
  return {fma(lost, -0.564189583547756287 * gauss, 0.5 * ::erfc(z)), 0.398942280401432678 * gauss};
}

namespace detail {

template <Real T>
TESSERA_HD T erf_in_f32(T x) {
  const T a = at_most(absolute(x), 4.0f);  // beyond it the result is 1
  // Polynomials by even and odd terms, so that no step waits for all before it.
  const T z = a * a, z2 = z * z;
  const T low =
      fma(z2, fma(z, -2.685444459e-2f, 1.128360018e-1f), fma(z, -3.761262714e-1f, 1.283791659e-1f));
  const T high = fma(z2, 7.889119526e-5f, fma(z, -8.020841278e-4f, 5.189535339e-3f));
  const T near = fma(fma(mul(z2, z2), high, low), a, a);  // 2 / sqrt(pi) = 1 + 0.1283...
  // -log(1 - erf(a)) for 1 <= a.
  const T first =
      fma(z, fma(a, 1.031068215e-1f, 6.381447581e-1f), fma(a, 1.127089234f, 3.415125763e-4f));
  const T last = fma(z, -1.863800856e-4f, fma(a, 2.947666809e-3f, -2.183809702e-2f));
  const T exponent = -fma(z2, last, first), shifted = shifted_exponent(exponent);
  const T far = 1.0f - times_low_power(expm1_of_rest(exponent, shifted) + 1.0f, shifted);
  return copysign(if_less(a, 1.0f, near, far), x);
}

}  // namespace detail

/// The error function within 1.4 ulp.
TESSERA_HD float erf(float x) { return detail::erf_in_f32(x); }
TESSERA_HD double erf(double x) { return ::erf(x); }

/// x to the power y; signs, zeros and infinities as in IEEE's pow. For f32 see scalar_elementary.h.
TESSERA_HD double pow(double x, double y) { return ::pow(x, y); }
/// Wraps around as integer products do; for y < 0 the result is truncated to an integer (0 for x =
/// 0).
TESSERA_HD std::int64_t pow(std::int64_t x, std::int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? 1 - 2 * (y & 1) : 0;
  auto base = static_cast<std::uint64_t>(x);
  std::uint64_t result = 1;
  for (; y > 0; y >>= 1) {
    if ((y & 1) != 0) result *= base;
    base *= base;
  }
  return static_cast<std::int64_t>(result);
}

/// 1 / (1 + e^-x).
template <Real T>
TESSERA_HD T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

}  // namespace tessera::scalar
