#pragma once

/// Functors for packed.h with the same results as those of math/, for f32 too: with an easy path for
/// almost all numbers, or one functor for several operations.

#include <cmath>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed_math.h"
#include "tessera/tensor/kernels/math/functors_binary.h"

namespace tessera::cuda {

struct EasySin {
  TESSERA_HD bool is_easy(float x) const { return ::fabsf(x) < scalar::detail::kLargeAngle; }
  TESSERA_HD float easy(float x) const { return scalar::sin_small(x); }
  TESSERA_HD float operator()(float x) const { return scalar::sin(x); }
};
struct EasyCos {
  TESSERA_HD bool is_easy(float x) const { return ::fabsf(x) < scalar::detail::kLargeAngle; }
  TESSERA_HD float easy(float x) const { return scalar::cos_small(x); }
  TESSERA_HD float operator()(float x) const { return scalar::cos(x); }
};

/// |a| / |b| rounded down, and what is left of |a|: both exact.
struct WholeDivision {
  float quotient;
  float rest;
};

/// Whether divide_whole() serves: b is far from the ends of f32's range, the quotient below 2^19.
TESSERA_HD bool divides_easily(float a, float b) {
  const float size = ::fabsf(b);
  return (size > 0x1p-100f) & (size < 0x1p100f) & (::fabsf(a) < 0x1p19f * size);
}
/// An approximate quotient, off by less than 1/4, is rounded to an integer: the right one or the next.
/// The sign of the rest, which is exact in the fma if the integer is right, tells which.
TESSERA_HD WholeDivision divide_whole(float a, float b) {
  const float numerator = ::fabsf(a), divisor = ::fabsf(b);
  const float shifter = 8388608.0f;  // its neighbours are integers
  const float near = (fast::quotient(numerator, divisor) + shifter) - shifter;
  const float rest = scalar::fma(-near, divisor, numerator);
  const float down = rest < 0.0f ? near - 1.0f : near;
  return {down, scalar::fma(-down, divisor, numerator)};
}

struct EasyRemainder {
  TESSERA_HD bool is_easy(float a, float b) const { return divides_easily(a, b); }
  TESSERA_HD float easy(float a, float b) const {
    const float r = ::copysignf(divide_whole(a, b).rest, a);
    return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
  }
  TESSERA_HD float operator()(float a, float b) const { return functors::Remainder()(a, b); }
};

struct EasyFloorDivide {
  TESSERA_HD bool is_easy(float a, float b) const { return divides_easily(a, b); }
  TESSERA_HD float easy(float a, float b) const {
    const WholeDivision whole = divide_whole(a, b);
    const bool negative = (a < 0.0f) != (b < 0.0f);
    const float size = negative && whole.rest != 0.0f ? whole.quotient + 1.0f : whole.quotient;
    return ::copysignf(size, ::copysignf(1.0f, a) * b);
  }
  TESSERA_HD float operator()(float a, float b) const { return functors::FloorDivide()(a, b); }
};

/// a^3. From 16 bits all products are exact, but for one rounding.
struct Cube {
  TESSERA_HD float operator()(float a) const { return (a * a) * a; }
};
/// a^3 rounded as by pow in f64.
struct WideCube {
  TESSERA_HD float operator()(float a) const {
    const double wide = a;
    return static_cast<float>(wide * wide * wide);
  }
};

/// All comparisons: the result for each order of two numbers.
struct Compare {
  float less, equal, greater, unordered;

  TESSERA_HD float operator()(float a, float b) const {
    return a < b ? less : a == b ? equal : a > b ? greater : unordered;
  }
};

/// All logical operations: the result for each pair of truths.
struct Logic {
  float neither, first, second, both;

  TESSERA_HD float operator()(float a, float b) const {
    return b != 0.0f ? (a != 0.0f ? both : second) : (a != 0.0f ? first : neither);
  }
};

/// Predicates: the result for each kind of number.
struct Classify {
  float zero, finite, infinite, nan;

  TESSERA_HD float operator()(float x) const {
    return x == 0.0f ? zero : x - x == 0.0f ? finite : x == x ? infinite : nan;
  }
};

}  // namespace tessera::cuda
