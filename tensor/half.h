#pragma once

/// 16-bit floating-point numbers: storage formats; arithmetic on them is done in f32.
///
/// BFloat16 has the exponent range of f32 and 8 bits of precision. Float16 (IEEE binary16) has 11
/// bits of precision and a maximum of 65504. Conversion rounds once, to nearest with ties to even,
/// also from double. NaN stays NaN, values above the maximum become infinite, small values become
/// subnormals. The code has no branches, so that the compiler vectorizes loops over it. Usable in
/// device code, where one instruction converts, with the same results except for the bits of a NaN.

#include <bit>
#include <cstdint>
#include <limits>

#include "tessera/tensor/host_device.h"

namespace tessera {

namespace half {

/// The float nearest to `x`, with its last bit set if it is not exact (round to odd). Rounding it
/// to 16 bits gives the same result as rounding `x` directly.
TESSERA_HD float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const double back = nearest;
  const bool inexact = back < x || back > x;  // false for NaN
  const bool too_large = (back < 0 ? -back : back) > (x < 0 ? -x : x);
  const std::uint32_t odd = too_large ? bits - 1 : bits + 1;
  return std::bit_cast<float>(inexact && (bits & 1u) == 0 ? odd : bits);
}

TESSERA_HD std::uint16_t bfloat16_bits(float x) {
#ifdef __CUDA_ARCH__
  std::uint16_t out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
  return out;
#else
  // In loops every step is one instruction on 32 bits. Compilers narrow choices between results to 16 bits and widen them again.
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t half = x != x ? 0u : 0x7fffu + ((bits >> 16) & 1u);
  const std::uint32_t quiet = x != x ? 0x400000u : 0u;
  return static_cast<std::uint16_t>(((bits + half) | quiet) >> 16);
#endif
}

TESSERA_HD float from_bfloat16_bits(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

TESSERA_HD std::uint16_t float16_bits(float x) {
#ifdef __CUDA_ARCH__
  std::uint16_t out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
  return out;
#else
  const auto all = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (all >> 16) & 0x8000u, bits = all & 0x7fffffffu;
  // Normal results: rebias the exponent and round the mantissa; a carry increments the exponent.
  const std::uint32_t normal = (bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13;
  // Subnormal results: adding 0.5 makes the addition round at 2^-24.
  const float shifted = std::bit_cast<float>(bits > 0x38800000u ? 0u : bits) + 0.5f;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
  const std::uint32_t finite = bits < 0x38800000u ? subnormal : normal;
  const std::uint32_t large = bits >= 0x477ff000u ? 0x7c00u : finite;
  const std::uint32_t quiet = 0x7e00u | ((bits >> 13) & 0x3ffu);
  return static_cast<std::uint16_t>(sign | (bits > 0x7f800000u ? quiet : large));
#endif
}

TESSERA_HD float from_float16_bits(std::uint16_t half) {
#ifdef __CUDA_ARCH__
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(half));
  return out;
#else
  const std::uint32_t sign = (half & 0x8000u) << 16, bits = half & 0x7fffu;
  const std::uint32_t normal = (bits << 13) + 0x38000000u;
  // A subnormal is an integer multiple of 2^-24.
  const auto subnormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-24f);
  const std::uint32_t special =
      0x7f800000u | ((bits & 0x3ffu) << 13) | ((bits & 0x3ffu) != 0 ? 0x400000u : 0u);
  const std::uint32_t finite = bits < 0x400u ? subnormal : normal;
  return std::bit_cast<float>(sign | (bits >= 0x7c00u ? special : finite));
#endif
}

}  // namespace half

struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;
  TESSERA_HD explicit BFloat16(float x) : bits(half::bfloat16_bits(x)) {}
  TESSERA_HD explicit BFloat16(double x) : BFloat16(half::round_to_odd(x)) {}
  template <class Integer>
  requires std::numeric_limits<Integer>::is_integer TESSERA_HD explicit BFloat16(Integer x)
      : BFloat16(static_cast<double>(x)) {}
  TESSERA_HD operator float() const { return half::from_bfloat16_bits(bits); }
};

struct Float16 {
  std::uint16_t bits;

  Float16() = default;
  TESSERA_HD explicit Float16(float x) : bits(half::float16_bits(x)) {}
  TESSERA_HD explicit Float16(double x) : Float16(half::round_to_odd(x)) {}
  template <class Integer>
  requires std::numeric_limits<Integer>::is_integer TESSERA_HD explicit Float16(Integer x)
      : Float16(static_cast<double>(x)) {}
  TESSERA_HD operator float() const { return half::from_float16_bits(bits); }
};

}  // namespace tessera
