// f64, on whatever device is the default one when it is used.
#pragma once

#include "tessera/tensor/tensor.h"

namespace tessera::testing {

struct DoubleOptions {
  operator TensorOptions() const { return {.dtype = DType::kF64}; }
};
inline constexpr DoubleOptions kDouble;

}  // namespace tessera::testing
