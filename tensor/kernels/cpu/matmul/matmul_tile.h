#pragma once

/// One tile of a product.

#include <cstdint>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

/// A matrix: address of its first element, and strides.
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
  /// True if `rows` x `columns` elements have no gaps, by rows or by columns.
  bool is_dense(std::int64_t rows, std::int64_t columns) const {
    return (column_stride == 1 && row_stride == columns) ||
           (row_stride == 1 && column_stride == rows);
  }
};
using Matrix = MatrixOf<void*>;
using ConstMatrix = MatrixOf<const void*>;

/// c = alpha * a b + beta * c, or a b + bias if bias is not null; extents above 0. c has rows of
/// unit stride; bias, if not said otherwise, has the dtype of a and b.
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

/// Operands of f32, bf16 or f16, and c of f32; alpha is 1, beta 0 or 1, bias f32. With AVX-512, by oneDNN: no f16, bf16 only if
/// multiplies_bf16() is true; c may be bf16 like the operands if beta is 0, and bias has their dtype. Throws DeviceError if the
/// library fails. Without, by our own code (matmul_packed.cc).
void multiply_floats(const TileProduct& tile, Workspace scratch);
/// With AVX-512: true if the CPU has instructions for bf16; on other CPUs f32 is faster.
bool multiplies_bf16();
/// By Eigen: all f64 products, one at a time.
void multiply_by_eigen(const TileProduct& tile, Workspace scratch);

/// One row times a matrix, m = 1, in f32 or f64, or of 16-bit operands with c in f32. Each element of b
/// is used once, so packing it, as the libraries do, would only cost time.
void multiply_row(const TileProduct& tile);
/// True for the products that multiply_row() computes faster than the libraries.
bool is_row_product(const TileProduct& tile);

// The initial value of an output to which a product is added.

/// Writes bias, or beta times c, into the output, for products that add to it.
template <class T>
void prepare_output(const TileProduct& t) {
  if (t.bias == nullptr && t.beta == 1) return;
  const auto* bias = static_cast<const T*>(t.bias);
  for (std::int64_t i = 0; i < t.m; ++i) {
    T* row = static_cast<T*>(t.c.data) + i * t.c.row_stride;
    for (std::int64_t j = 0; j < t.n; ++j) {
      if (bias != nullptr) {
        row[j] = bias[j];
      } else {
        row[j] = t.beta == 0 ? T(0) : static_cast<T>(t.beta) * row[j];
      }
    }
  }
}

}  // namespace tessera::cpu
