#pragma once

/// From a run-time DType to a C++ type, for kernels. The operation has checked the dtype, so
/// nothing throws here, and kernel builds need not link error handling.

#include <utility>

#include "tessera/tensor/dtype.h"

namespace tessera {

/// Calls `body.template operator()<T>()` for kF32 or kF64.
template <class Body>
constexpr void with_floating_type(DType dtype, Body&& body) {
  if (dtype == DType::kF64) {
    body.template operator()<double>();
  } else {
    body.template operator()<float>();
  }
}

/// The same for every dtype.
template <class Body>
constexpr void with_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kI64:
      return body.template operator()<std::int64_t>();
    case DType::kU8:
      return body.template operator()<std::uint8_t>();
    case DType::kBF16:
      return body.template operator()<BFloat16>();
    case DType::kF16:
      return body.template operator()<Float16>();
    case DType::kI32:
      return body.template operator()<std::int32_t>();
    case DType::kBool:
      return body.template operator()<bool>();
  }
}

/// Calls `body.template operator()<C>()` with the compute type of `dtype`: float for f32 and the
/// 16-bit types, double, or std::int64_t for integers and bool.
template <class Body>
constexpr void with_compute_type(DType dtype, Body&& body) {
  if (dtype == DType::kF64) return body.template operator()<double>();
  if (is_floating(dtype)) return body.template operator()<float>();
  return body.template operator()<std::int64_t>();
}

}  // namespace tessera
