#pragma once

/// The bounds of clamp. For autograd's own .cc files.

#include <cmath>
#include <cstdint>

#include "tessera/tensor/ops/elementwise.h"

namespace tessera::detail {

/// The number that clamps a tensor of this dtype: an integer where it can, so that a tensor of
/// integers stays one.
inline TensorOrNumber clamp_bound(double number, DType dtype) {
  const bool whole = std::abs(number) <= 0x1p53 && number == std::trunc(number);
  return whole && !is_floating(dtype) ? TensorOrNumber(static_cast<std::int64_t>(number))
                                      : TensorOrNumber(number);
}

}  // namespace tessera::detail
