#pragma once

/// The differentiable counterparts of tensor/ops/mask.h; masks are plain tensors. All twice.
/// Positions have no gradient.

#include <vector>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/mask.h"

namespace tessera {

inline Tensor nonzero(const Variable& x) { return nonzero(x.tensor()); }
inline std::vector<Tensor> nonzero_as_tuple(const Variable& x) {
  return nonzero_as_tuple(x.tensor());
}
inline Tensor nonzero_static(const Variable& x, std::int64_t size, std::int64_t fill_value = -1) {
  return nonzero_static(x.tensor(), size, fill_value);
}

Variable masked_select(const Variable& x, const Tensor& mask);
Variable masked_scatter(const Variable& x, const Tensor& mask, const Variable& source);
Variable masked_fill(const Variable& x, const Tensor& mask, double value);
/// The value's gradient is the sum over the places that it fills.
Variable masked_fill(const Variable& x, const Tensor& mask, const Variable& value);
inline Variable masked_fill(const Variable& x, const Tensor& mask, const Tensor& value) {
  return masked_fill(x, mask, Variable(value));
}

}  // namespace tessera
