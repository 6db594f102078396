#pragma once

/// Making and filling tensors. Values are converted to the dtype as cast() does. Random ones:
/// random.h.

#include <cstdint>

#include "tessera/tensor/tensor.h"

namespace tessera {

Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
Tensor empty(const Shape& shape, const TensorOptions& options = {});  ///< uninitialised

/// Of x's shape, dtype and device, contiguous.
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, double value);
Tensor empty_like(const Tensor& x);

/// 0, 1, ..., n-1 as a 1-D tensor.
Tensor arange(std::int64_t n, const TensorOptions& options = {.dtype = DType::kI64});
/// start, start + step, ..., those below `end` (above it for a negative step). Throws
/// InvalidArgument for a step of 0, one that leads away from `end` however near that is, and
/// numbers that an integer dtype does not hold.
Tensor arange(double start, double end, double step, const TensorOptions& options = {});
/// `count` numbers from start to end, both included, evenly spaced; floating only.
Tensor linspace(double start, double end, std::int64_t count, const TensorOptions& options = {});
/// [rows, columns] with ones on the diagonal; columns < 0: as many as rows.
Tensor eye(std::int64_t rows, std::int64_t columns = -1, const TensorOptions& options = {});

/// Every element of `out` (any strides) becomes `value`, converted to its dtype.
void fill_(const Tensor& out, double value);
void zero_(const Tensor& out);

}  // namespace tessera
