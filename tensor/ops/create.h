#pragma once

/// Creating and filling tensors. Values are converted to the dtype as cast() does. For random
/// tensors see random.h.

#include <cstdint>

#include "tessera/tensor/tensor.h"

namespace tessera {

Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const TensorOptions& options = {});
Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
Tensor empty(const Shape& shape, const TensorOptions& options = {});  ///< uninitialised

/// Where the rows of a tensor, along its last dim, begin in memory.
enum class RowPitch : std::uint8_t {
  kPacked,   ///< each after the last element of the row before: contiguous
  kAligned,  ///< on a GPU at multiples of 16 bytes, unless a row has one element; on the CPU packed
};
/// Elements from the beginning of a row of `width` elements to that of the next.
std::int64_t pitch_of(std::int64_t width, RowPitch pitch, const TensorOptions& options = {});
/// Uninitialised. GPUs multiply matrices with aligned rows much faster. The tensor is then a view
/// of a wider one, unless rows have a multiple of 16 bytes anyway: it is not contiguous, but all
/// dims except the last can still be merged by view().
Tensor empty_rows(const Shape& shape, RowPitch pitch, const TensorOptions& options = {});

/// With x's shape, dtype and device, contiguous.
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, double value);
Tensor empty_like(const Tensor& x);

/// 0, 1, ..., n-1 as a 1-D tensor.
Tensor arange(std::int64_t n, const TensorOptions& options = {.dtype = DType::kI64});
/// start, start + step, ... while below `end` (above it for a negative step). Throws
/// InvalidArgument for a step of 0, for a step in the direction away from `end`, and for numbers
/// that an integer dtype cannot hold.
Tensor arange(double start, double end, double step, const TensorOptions& options = {});
/// `count` numbers from start to end, both included, evenly spaced; floating only.
Tensor linspace(double start, double end, std::int64_t count, const TensorOptions& options = {});
/// base to the power of linspace's numbers, which are computed in f64.
Tensor logspace(double start, double end, std::int64_t count, double base = 10,
                const TensorOptions& options = {});
/// [rows, columns] with ones on the diagonal; columns < 0: equal to rows.
Tensor eye(std::int64_t rows, std::int64_t columns = -1, const TensorOptions& options = {});

/// Sets every element of `out` (any strides) to `value`, converted to its dtype.
void fill_(const Tensor& out, double value);
void zero_(const Tensor& out);

}  // namespace tessera
