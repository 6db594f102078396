#pragma once

/// Counter-based random numbers of one position, with the same bits on CPU and GPU. See random.h.

#include <array>
#include <cmath>
#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/math/scalar_trig.h"

namespace tessera::random {

/// Four random words.
struct Words {
  std::uint32_t w[4];
};

/// What the two halves of a key grow by after each round.
inline constexpr std::uint32_t kPhiloxLowStep = 0x9E3779B9u, kPhiloxHighStep = 0xBB67AE85u;

/// Philox4x32-10: ten rounds on the counter `block`, under `key`.
TESSERA_HD Words philox(std::uint64_t key, Words counter) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter.w[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter.w[2];
    counter = {
        {static_cast<std::uint32_t>(p1 >> 32) ^ counter.w[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ counter.w[3] ^ k1, static_cast<std::uint32_t>(p0)}};
    k0 += kPhiloxLowStep;
    k1 += kPhiloxHighStep;
  }
  return counter;
}

/// Block number `block` of a key's sequence.
TESSERA_HD Words philox(std::uint64_t key, std::uint64_t block) {
  return philox(key, Words{{static_cast<std::uint32_t>(block),
                            static_cast<std::uint32_t>(block >> 32), 0u, 0u}});
}

/// The numbers that one block of four words gives: four f32 or two f64.
template <class T>
inline constexpr int kNumbersPerBlock = sizeof(T) == 4 ? 4 : 2;

template <class T>
struct Numbers {
  T n[kNumbersPerBlock<T>];
};

/// Uniform in [0, 1): 24 bits from one word, or 53 bits from two.
template <class T>
TESSERA_HD Numbers<T> uniforms(const Words& words, T /*type*/);
template <>
TESSERA_HD Numbers<float> uniforms(const Words& words, float /*type*/) {
  Numbers<float> out;
  for (int i = 0; i < 4; ++i) out.n[i] = static_cast<float>(words.w[i] >> 8) * 0x1p-24f;
  return out;
}
template <>
TESSERA_HD Numbers<double> uniforms(const Words& words, double /*type*/) {
  Numbers<double> out;
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t bits = (std::uint64_t{words.w[2 * i]} << 32) | words.w[2 * i + 1];
    out.n[i] = static_cast<double>(bits >> 11) * 0x1p-53;
  }
  return out;
}

/// Two uniform numbers become two standard normal ones, by Box-Muller.
template <class T>
TESSERA_HD void make_normal(T& first, T& second) {
  // 1 - u lies in (0, 1], so the logarithm exists.
  const T radius = std::sqrt(T(-2) * scalar::log_portable(T(1) - first));
  const scalar::SinCos<T> angle = scalar::sincos_turns(second);
  first = radius * angle.cos;
  second = radius * angle.sin;
}

/// Standard normal: two numbers from two uniforms.
template <class T>
TESSERA_HD Numbers<T> normals(const Words& words, T type) {
  Numbers<T> out = uniforms(words, type);
  for (int i = 0; i < kNumbersPerBlock<T>; i += 2) make_normal(out.n[i], out.n[i + 1]);
  return out;
}

/// The quantile function of the standard normal distribution for 0 < p < 1 (-inf and inf at the
/// ends). Rational approximations of M. Wichura, "Algorithm AS 241", 1988, with a relative error of
/// 1e-16.
TESSERA_HD double normal_quantile(double p) {
  using scalar::polynomial;
  const double q = p - 0.5;
  if (::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q *
           polynomial(r, 2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
                      4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
                      1.3314166789178437745e2, 3.3871328727963666080) /
           polynomial(r, 5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
                      2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
                      4.2313330701600911252e1, 1.0);
  }
  const double tail = q < 0 ? p : 1.0 - p;
  if (!(tail > 0)) return q < 0 ? -INFINITY : INFINITY;
  const double root = ::sqrt(-scalar::log_portable(tail));
  const double near = root - 1.6, far = root - 5.0;
  const double x =
      root <= 5.0
          ? polynomial(near, 7.74545014278341407640e-4, 2.27238449892691845833e-2,
                       2.41780725177450611770e-1, 1.27045825245236838258, 3.64784832476320460504,
                       5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734) /
                polynomial(near, 1.05075007164441684324e-9, 5.47593808499534494600e-4,
                           1.51986665636164571966e-2, 1.48103976427480074590e-1,
                           6.89767334985100004550e-1, 1.67638483018380384940,
                           2.05319162663775882187, 1.0)
          : polynomial(far, 2.01033439929228813265e-7, 2.71155556874348757815e-5,
                       1.24266094738807843860e-3, 2.65321895265761230930e-2,
                       2.96560571828504891230e-1, 1.78482653991729133580, 5.46378491116411436990,
                       6.65790464350110377720) /
                polynomial(far, 2.04426310338993978564e-15, 1.42151175831644588870e-7,
                           1.84631831751005468180e-5, 7.86869131145613259100e-4,
                           1.48753612908506148525e-2, 1.36929880922735805310e-1,
                           5.99832206555887937690e-1, 1.0);
  return q < 0 ? -x : x;
}

}  // namespace tessera::random
