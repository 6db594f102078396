#pragma once

/// Runs of elements of any dtype, converted from and to their compute type: the only place where
/// CPU kernels know all dtypes.
///
/// C is float, double or std::int64_t. Numbers are converted as in C++, except that floating to
/// integer truncates, clamps to the range and converts NaN to 0. To bool: x != 0.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/tensor/dtype.h"

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

/// `data` advanced by `elements` of `dtype`.
inline const void* advance(const void* data, DType dtype, std::int64_t elements) {
  return static_cast<const char*>(data) + elements * static_cast<std::int64_t>(dtype_size(dtype));
}
inline void* advance(void* data, DType dtype, std::int64_t elements) {
  return static_cast<char*>(data) + elements * static_cast<std::int64_t>(dtype_size(dtype));
}

}  // namespace tessera::cpu
