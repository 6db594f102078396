#pragma once

/// What becomes of a product before it is a result: alpha, beta, bias, rounding, activation.

#include <cstdint>

#include "tessera/tensor/activation.h"
#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"

namespace tessera::cpu {

/// Where a tile goes, and what is done on the way. All of it is computed in f32, in f64 where one
/// of the dtypes is f64; the activation takes the rounded value, as an operation of its own would.
struct Finish {
  Matrix c;       ///< rows of unit stride
  Matrix before;  ///< gets what the activation is applied to; no data: nobody wants it
  const void* bias = nullptr;
  DType bias_dtype = DType::kF32;
  std::int64_t bias_stride = 1;
  double alpha = 1;
  double beta = 0;
  Activation activation = Activation::kNone;

  /// The same for a part that begins `row` rows and `column` columns into it.
  Finish at(std::int64_t row, std::int64_t column) const;
};

/// From a product of f32 or f64 with rows of `stride` elements.
void finish(const Finish& how, const float* product, std::int64_t stride, std::int64_t m,
            std::int64_t n);
void finish(const Finish& how, const double* product, std::int64_t stride, std::int64_t m,
            std::int64_t n);

/// y = activation(x) for matrices of one dtype with rows of unit stride; they may be the same.
void activate(Activation activation, const Matrix& x, const Matrix& y, std::int64_t m,
              std::int64_t n);

}  // namespace tessera::cpu
