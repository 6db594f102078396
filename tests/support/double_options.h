// f64 on the current default device.
#pragma once

#include "tessera/tensor/tensor.h"

namespace tessera::testing {

struct DoubleOptions {
  operator TensorOptions() const { return {.dtype = DType::kF64}; }
};
inline constexpr DoubleOptions kDouble;

}  // namespace tessera::testing
