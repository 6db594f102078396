#pragma once

/// From a run-time DType to a C++ type, for kernels. The operation has checked the dtype, so
/// nothing throws here and kernel builds need no library for it.

#include <utility>

#include "tessera/tensor/dtype.h"

namespace tessera {

/// Calls `body.template operator()<T>()` for kF32 or kF64.
template <class Body>
void with_floating_type(DType dtype, Body&& body) {
  if (dtype == DType::kF64) {
    body.template operator()<double>();
  } else {
    body.template operator()<float>();
  }
}

/// The same for every dtype.
template <class Body>
void with_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kI64:
      return body.template operator()<std::int64_t>();
    case DType::kU8:
      return body.template operator()<std::uint8_t>();
  }
}

}  // namespace tessera
