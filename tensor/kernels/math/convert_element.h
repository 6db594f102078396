#pragma once

/// Conversion of one element, written once for CPU and GPU.

#include <limits>
#include <type_traits>

#include "tessera/tensor/half.h"
#include "tessera/tensor/host_device.h"

namespace tessera {

/// Converts as C++ does. Exception: floating to integer truncates, clamps to the range and converts
/// NaN to 0, where a plain cast is undefined. To bool: x != 0.
template <class To, class From>
TESSERA_HD To convert_element(From value) {
  constexpr bool kFromHalf = std::is_same_v<From, BFloat16> || std::is_same_v<From, Float16>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kFromHalf) {
    return convert_element<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr auto kLow = std::numeric_limits<To>::min();
    constexpr auto kHigh = std::numeric_limits<To>::max();
    if (!(value > static_cast<From>(kLow))) return value <= static_cast<From>(kLow) ? kLow : To{0};
    return value >= static_cast<From>(kHigh) ? kHigh : static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace tessera
