#pragma once

/// Unsigned integers in the order of the elements, so that one sort serves every dtype: NaN is the
/// largest, -0 equals 0. Pure functions, tested on the CPU.

#include <bit>
#include <cstdint>

#include "tessera/tensor/host_device.h"

namespace tessera {

TESSERA_HD std::uint32_t sort_key(float x) {
  constexpr std::uint32_t kSign = 1u << 31;
  if (x != x) return ~0u;
  const auto bits = std::bit_cast<std::uint32_t>(x == 0 ? 0.0f : x);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
TESSERA_HD std::uint64_t sort_key(double x) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  if (x != x) return ~std::uint64_t{0};
  const auto bits = std::bit_cast<std::uint64_t>(x == 0 ? 0.0 : x);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
TESSERA_HD std::uint32_t sort_key(std::int32_t x) {
  return static_cast<std::uint32_t>(x) ^ (1u << 31);
}
TESSERA_HD std::uint64_t sort_key(std::int64_t x) {
  return static_cast<std::uint64_t>(x) ^ (std::uint64_t{1} << 63);
}

}  // namespace tessera
