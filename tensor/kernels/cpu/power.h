#pragma once

/// Powers of f32 numbers by one of the usual exponents, without logarithms.

#include <cmath>
#include <limits>

#include "tessera/tensor/kernels/cpu/blocks.h"

namespace tessera::cpu {

/// x to the power kHalves / 2, for up to 4 in size. In f64, where nothing overflows, and rounded once, as scalar::pow;
/// signs, zeros and infinities as in IEEE's pow.
template <int kHalves>
struct PowerOfHalves {
  float operator()(float x) const {
    constexpr int kSize = kHalves < 0 ? -kHalves : kHalves;
    constexpr bool kHasRoot = kSize % 2 != 0;
    const double factor = kHasRoot ? std::abs(static_cast<double>(x)) : static_cast<double>(x);
    double y = kHasRoot ? root(x) : factor;
    for (int i = kHasRoot ? 0 : 1; i < kSize / 2; ++i) y *= factor;
    return static_cast<float>(kHalves < 0 ? 1.0 / y : y);
  }

 private:
  /// pow(-0, 0.5) is 0 and pow(-inf, 0.5) is inf, unlike roots.
  static double root(double x) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return x == -kInfinity ? kInfinity : std::sqrt(x) + 0.0;
  }
};

/// y = x to the power `exponent`, or false if the exponent is none of the usual ones.
template <int... kHalves>
bool map_power_of(const View& y, const Operand& x, double exponent) {
  return ((exponent == 0.5 * kHalves && (map<float>(y, PowerOfHalves<kHalves>(), x), true)) || ...);
}
inline bool map_power(const View& y, const Operand& x, double exponent) {
  return map_power_of<-6, -4, -2, -1, 1, 3, 6, 8>(y, x, exponent);
}

}  // namespace tessera::cpu
