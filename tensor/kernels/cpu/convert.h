#pragma once

/// Runs of elements of any dtype, converted from and to their compute type: the only place where
/// CPU kernels know all dtypes.
///
/// C is float, double or std::int64_t. Numbers are converted as in C++, except that floating to
/// integer truncates, clamps to the range and converts NaN to 0. To bool: x != 0.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/half.h"
#include "tessera/tensor/kernels/math/convert_element.h"

namespace tessera::cpu {

/// out[i] = from[i * stride], i < n.
template <class C>
void load_run(DType dtype, const void* from, std::int64_t stride, std::int64_t n, C* out);

/// to[i * stride] = values[i], i < n.
template <class C>
void store_run(DType dtype, void* to, std::int64_t stride, std::int64_t n, const C* values);

/// A number that all elements share, as C: of NaN only the sign is kept, and the payload becomes zero.
template <class C>
C number_as(double number) {
  if constexpr (std::is_floating_point_v<C>) {
    if (number != number)
      return std::copysign(std::numeric_limits<C>::quiet_NaN(), static_cast<C>(number));
  }
  return static_cast<C>(number);
}

/// `x` as an element of type T, rounded if it is not exact. To bf16, NaN needs no test: it comes from an operand of
/// bf16, from number_as() or from an instruction, so its low 16 bits are zero and rounding keeps the high ones.
template <class T, bool kExact = false, class C>
T stored(C x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t half = kExact ? 0u : 0x7fffu + ((bits >> 16) & 1u);
    BFloat16 y;
    y.bits = static_cast<std::uint16_t>((bits + half) >> 16);
    return y;
  } else {
    return convert_element<T>(x);
  }
}

/// `data` advanced by `elements` of `dtype`.
inline const void* advance(const void* data, DType dtype, std::int64_t elements) {
  return static_cast<const char*>(data) + elements * static_cast<std::int64_t>(dtype_size(dtype));
}
inline void* advance(void* data, DType dtype, std::int64_t elements) {
  return static_cast<char*>(data) + elements * static_cast<std::int64_t>(dtype_size(dtype));
}

}  // namespace tessera::cpu
