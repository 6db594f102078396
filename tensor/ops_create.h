#pragma once

/// Making and filling tensors.

#include "tessera/tensor/tensor.h"

namespace tessera {

Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
Tensor zeros_like(const Tensor& x);
/// 0, 1, ..., n-1 as a 1-D tensor.
Tensor arange(std::int64_t n, const TensorOptions& options = {.dtype = DType::kI64});

/// Every element of `out` (any strides) becomes `value`, converted to its dtype.
void fill(const Tensor& out, double value);

}  // namespace tessera
