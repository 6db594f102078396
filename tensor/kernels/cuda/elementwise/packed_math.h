#pragma once

/// Functors for packed.h with results that are rounded to 16 bits: formulas in f32 that are much
/// shorter than those of math/, with the hardware's 2^x, log2 and reciprocal. Unless said otherwise
/// their relative error is below 2^-15: after rounding a result is the same as from math/ or,
/// rarely, its neighbour. Infinities, NaN and zeros of 0 are the same. They are listed in the
/// README.md of kernels/cuda, as exceptions.

#include <bit>
#include <cmath>
#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/math/scalar_trig.h"

namespace tessera::cuda {

namespace fast {

inline constexpr float kLog2OfE = 1.44269504f, kLogOf2 = 0.693147181f;

TESSERA_HD float exp2(float x) { return ::exp2f(x); }
/// Off by up to 2^-22, also where the logarithm is close to 0.
TESSERA_HD float log2(float x) {
#ifdef __CUDA_ARCH__
  return ::__log2f(x);
#else
  return ::log2f(x);
#endif
}
/// a / b; 0 if |b| is greater than 2^126.
TESSERA_HD float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  return ::__fdividef(a, b);
#else
  return a / b;
#endif
}
TESSERA_HD float rsqrt(float x) {
#ifdef __CUDA_ARCH__
  return ::rsqrtf(x);
#else
  return 1.0f / ::sqrtf(x);
#endif
}

/// log2(1 + f), where u is 1 + f rounded. Near 1 by a polynomial, with a relative error of 2^-21.
TESSERA_HD float log2_of_sum(float f, float u) {
  const float near = f * scalar::polynomial(f, 0.29365086555f, -0.36550131440f, 0.48086455464f,
                                            -0.72132796049f, 1.44269514084f);
  return ::fabsf(f) < 0.125f ? near : log2(u);
}

/// The density of the standard normal distribution, times sqrt(2 pi).
TESSERA_HD float gauss(float x) { return exp2((-0.5f * kLog2OfE) * (x * x)); }

/// Its distribution function, from gauss(x). The polynomial is our
/// own fit, exact at 0.
TESSERA_HD float normal_cdf(float x, float gauss) {
  const float t = quotient(1.0f, scalar::fma(0.2f, ::fabsf(x), 1.0f));
  const float p = scalar::polynomial(t, 0.27783754f, -0.38225219f, 0.44022039f, -0.11810007f,
                                     0.13044940f, 0.07153177f, 0.08031313f);
  const float tail = gauss * (t * p);
  return x > 0.0f ? 1.0f - tail : tail;
}

}  // namespace fast

/// With a relative error of about 2^-22 (1 + |x|).
struct FastSigmoid {
  TESSERA_HD float operator()(float x) const {
    // A quarter of both: quotient() takes the largest divisors for infinity.
    const float e = fast::exp2(-fast::kLog2OfE * x);
    return fast::quotient(0.25f, scalar::fma(0.25f, e, 0.25f));
  }
};

struct FastTanh {
  TESSERA_HD float operator()(float x) const {
    const float a = ::fabsf(x), z = x * x;
    const float p = scalar::polynomial(z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                                       1.33314422036e-1f, -3.33332819422e-1f);
    const float near = scalar::fma(p * z, x, x);
    const float far = 1.0f - fast::quotient(2.0f, fast::exp2((2 * fast::kLog2OfE) * a) + 1.0f);
    return ::copysignf(a < 0.625f ? near : far, x);
  }
};

struct FastLog {
  TESSERA_HD float operator()(float x) const {
    return fast::kLogOf2 * fast::log2_of_sum(x - 1.0f, x);
  }
};

struct FastLog1p {
  TESSERA_HD float operator()(float x) const {
    return scalar::fma(fast::kLogOf2, fast::log2_of_sum(x, 1.0f + x), 0.0f);  // 0 for -0
  }
};

struct FastSoftplus {
  TESSERA_HD float operator()(float x) const {
    return FastLog1p()(fast::exp2(-fast::kLog2OfE * ::fabsf(x))) + (x <= 0.0f ? 0.0f : x);
  }
};

struct FastRsqrt {
  TESSERA_HD float operator()(float x) const { return fast::rsqrt(x); }
};

struct FastErf {
  TESSERA_HD float operator()(float x) const {
    const float a = ::fabsf(x), z = x * x;
    const float near = x * scalar::polynomial(z, 0.00353364926f, -0.0255372617f, 0.112408958f,
                                              -0.376082689f, 1.12837923f);
    // erfc = 2^polynomial; beyond 4.1 it is lost in the rounding.
    const float far =
        1.0f - fast::exp2(scalar::polynomial(a > 4.1f ? 4.1f : a, -0.04062337801f, -1.10287988186f,
                                             -1.47854387760f, -0.04638694599f));
    return a < 1.0f ? near : ::copysignf(far, x);
  }
};

struct FastGelu {
  TESSERA_HD float operator()(float x) const {
    const float bounded = x < -40.0f ? -40.0f : x;  // -inf gives 0
    return bounded * fast::normal_cdf(bounded, fast::gauss(bounded));
  }
};

struct FastGeluBackward {
  TESSERA_HD float operator()(float dy, float x) const {
    const float upper = x > 40.0f ? 40.0f : x;
    const float bounded = upper < -40.0f ? -40.0f : upper;
    const float gauss = fast::gauss(bounded);
    return dy * scalar::fma(bounded, 0.398942280f * gauss, fast::normal_cdf(bounded, gauss));
  }
};

struct FastSoftplusBackward {
  TESSERA_HD float operator()(float dy, float x) const { return dy * FastSigmoid()(x); }
};

/// sin, or cos if kQuarters is 1.
template <int kQuarters>
struct FastSine {
  TESSERA_HD bool is_easy(float x) const { return ::fabsf(x) < 65536.0f; }
  /// pi/2 is subtracted in two parts; the first product is exact in the fma.
  TESSERA_HD float easy(float x) const {
    const float shifter = 12582912.0f;  // rounds to an integer, which is then in the low bits
    const float shifted = scalar::fma(x, 0.636619772f, shifter);
    const float n = shifted - shifter;
    const float rest = scalar::fma(n, -7.54978942e-8f, scalar::fma(n, -1.57079625f, x));
    const auto quarters = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted));
    const auto octant = scalar::detail::sincos_octant(rest);
    const float y = scalar::detail::turned(octant, quarters + kQuarters).sin;
    return kQuarters == 0 && x == 0.0f ? x : y;
  }
  TESSERA_HD float operator()(float x) const {
    if (is_easy(x)) return easy(x);
    return kQuarters == 0 ? scalar::sin(x) : scalar::cos(x);
  }
};

/// Off by up to 2^-13 of the result for bf16: the logarithm's error is multiplied by its size.
struct FastPow {
  TESSERA_HD bool is_easy(float a, float b) const {
    return (a > 0.0f) & (a - a == 0.0f) & (b - b == 0.0f);
  }
  TESSERA_HD float easy(float a, float b) const {
    return fast::exp2(b * fast::log2_of_sum(a - 1.0f, a));
  }
  TESSERA_HD float operator()(float a, float b) const {
    return is_easy(a, b) ? easy(a, b) : scalar::pow(a, b);
  }
};

/// A power by a finite number that is not 0.
struct FastPowNumber {
  float b;
  float of_negative;  ///< factor where a is negative: 1, -1, or NaN if b is no integer

  explicit FastPowNumber(float exponent)
      : b(exponent),
        of_negative(std::rint(b) != b            ? std::nanf("")
                    : std::fmod(b, 2.0f) == 0.0f ? 1.0f
                                                 : -1.0f) {}
  TESSERA_HD bool is_easy(float a) const { return (a != 0.0f) & (a - a == 0.0f); }
  TESSERA_HD float easy(float a) const {
    const float magnitude = FastPow().easy(::fabsf(a), b);
    return a < 0.0f ? of_negative * magnitude : magnitude;
  }
  TESSERA_HD float operator()(float a) const { return is_easy(a) ? easy(a) : scalar::pow(a, b); }
};

}  // namespace tessera::cuda
