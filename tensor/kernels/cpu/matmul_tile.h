#pragma once

/// One tile of a product, for the two libraries that compute it.

#include <cstdint>

#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

/// A matrix by its first element and strides.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;

  Matrix at(std::int64_t row, std::int64_t column) const {
    return {data + row * row_stride + column * column_stride, row_stride, column_stride};
  }
};

/// c = alpha * a b + beta * c, or a b + bias where bias is not null; c has rows of unit stride.
template <class T>
struct TileProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Matrix<const T> a;
  Matrix<const T> b;
  Matrix<T> c;
  const T* bias = nullptr;
  double alpha = 1;
  double beta = 0;
};

/// By oneDNN. Throws DeviceError when the library fails.
void multiply(const TileProduct<float>& tile, Workspace scratch);
/// By Eigen.
void multiply(const TileProduct<double>& tile, Workspace scratch);

}  // namespace tessera::cpu
