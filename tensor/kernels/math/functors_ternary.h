#pragma once

/// The computation of ternary kernels for one triple of elements; see functors.h.

#include "tessera/tensor/kernels/math/functors.h"

namespace tessera {

enum class TernaryOp : std::uint8_t {
  kWhere,     ///< condition != 0 ? b : c
  kClamp,     ///< a limited to [b, c]; NaN stays, the upper bound wins
  kLerp,      ///< a + c (b - a)
  kAddcmul,   ///< a + number * b * c
  kAddcdiv,   ///< a + number * b / c
  kNanToNum,  ///< a, but b for inf, c for -inf and number for NaN
  kCount,
};

namespace functors {

// addcmul, addcdiv and nan_to_num take a number as an additional operand; the others ignore it.
struct Where {
  template <class T>
  TESSERA_HD T operator()(T condition, T b, T c, T) const {
    return condition != T(0) ? b : c;
  }
};
struct Clamp {
  template <class T>
  TESSERA_HD T operator()(T x, T low, T high, T) const {
    const T raised = x < low ? low : x;
    return raised > high ? high : raised;
  }
};
/// Computed from the nearer end, so that 0 and 1 give a and b exactly.
struct Lerp {
  template <std::floating_point T>
  TESSERA_HD T operator()(T a, T b, T weight, T) const {
    const T distance = b - a;
    return weight < T(0.5) ? scalar::fma(weight, distance, a)
                           : scalar::fma(weight - T(1), distance, b);
  }
};
struct Addcmul {
  template <class T>
  TESSERA_HD T operator()(T a, T b, T c, T factor) const {
    if constexpr (std::floating_point<T>) {
      return scalar::fma(factor * b, c, a);
    } else {
      return a + factor * b * c;
    }
  }
};
struct Addcdiv {
  template <std::floating_point T>
  TESSERA_HD T operator()(T a, T b, T c, T factor) const {
    return a + scalar::mul(factor, b) / c;
  }
};
struct NanToNum {
  template <std::floating_point T>
  TESSERA_HD T operator()(T x, T for_infinity, T for_minus_infinity, T for_nan) const {
    const T infinite = x > T(0) ? for_infinity : for_minus_infinity;
    return x != x ? for_nan : x - x == T(0) ? x : infinite;
  }
};

/// In the order of TernaryOp.
using Ternary = std::tuple<Where, Clamp, Lerp, Addcmul, Addcdiv, NanToNum>;
static_assert(std::tuple_size_v<Ternary> == static_cast<std::size_t>(TernaryOp::kCount));

}  // namespace functors
}  // namespace tessera
