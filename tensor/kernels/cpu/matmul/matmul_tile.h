#pragma once

/// One tile of a product, and who computes it: one of two libraries, or we.

#include <cstdint>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

/// A matrix by its first element and strides.
template <class Pointer>
struct MatrixOf {
  Pointer data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  MatrixOf at(std::int64_t row, std::int64_t column) const {
    return {advance(data, dtype, row * row_stride + column * column_stride), dtype, row_stride,
            column_stride};
  }
  /// True when `rows` x `columns` elements have no gaps, in rows or in columns.
  bool is_dense(std::int64_t rows, std::int64_t columns) const {
    return (column_stride == 1 && row_stride == columns) ||
           (row_stride == 1 && column_stride == rows);
  }
};
using Matrix = MatrixOf<void*>;
using ConstMatrix = MatrixOf<const void*>;

/// c = alpha * a b + beta * c, or a b + bias where bias is not null; extents above 0. c has rows of
/// unit stride, bias the dtype of a and b.
struct TileProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  ConstMatrix a;
  ConstMatrix b;
  Matrix c;
  const void* bias = nullptr;
  double alpha = 1;
  double beta = 0;
  std::int64_t count = 1;  ///< products in one call; their matrices follow each other without gaps
};

/// By oneDNN: operands of f32, or of bf16 where multiplies_bf16() says so; c of f32, or bf16 as the
/// operands. alpha is 1, beta 0 or, with c of f32, 1. Throws DeviceError when the library fails.
void multiply_by_onednn(const TileProduct& tile, Workspace scratch);
/// True where the CPU has instructions for bf16; elsewhere f32 is quicker.
bool multiplies_bf16();
/// By Eigen: all of f64, one product at a time.
void multiply_by_eigen(const TileProduct& tile, Workspace scratch);

/// One row times a matrix, m = 1, all of f32 or all of f64. Each element of b is needed once, so
/// packing it, as the libraries do, would only take time.
void multiply_row(const TileProduct& tile);

}  // namespace tessera::cpu
