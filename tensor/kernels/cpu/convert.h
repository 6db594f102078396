#pragma once

/// Runs of elements of any dtype, converted from and to their compute type: the only place where
/// CPU kernels know all dtypes.
///
/// C is float, double or std::int64_t. Numbers are converted as in C++, except that floating to
/// integer truncates, clamps to the range and converts NaN to 0. To bool: x != 0.

#include <cstdint>

#include "tessera/tensor/dtype.h"

namespace tessera::cpu {

/// out[i] = from[i * stride], i < n.
template <class C>
void load_run(DType dtype, const void* from, std::int64_t stride, std::int64_t n, C* out);

/// to[i * stride] = values[i], i < n.
template <class C>
void store_run(DType dtype, void* to, std::int64_t stride, std::int64_t n, const C* values);

/// `data` advanced by `elements` of `dtype`.
inline const void* advance(const void* data, DType dtype, std::int64_t elements) {
  return static_cast<const char*>(data) + elements * static_cast<std::int64_t>(dtype_size(dtype));
}
inline void* advance(void* data, DType dtype, std::int64_t elements) {
  return static_cast<char*>(data) + elements * static_cast<std::int64_t>(dtype_size(dtype));
}

}  // namespace tessera::cpu
