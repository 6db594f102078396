#pragma once

/// The last steps of a product: alpha, beta, bias, rounding, activation.

#include <cstdint>

#include "tessera/tensor/activation.h"
#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"

namespace tessera::cpu {

/// The output of a tile and its last steps. Computed in f32, or in f64 if one of the dtypes is f64.
/// The activation is applied to the rounded value, as a separate operation would.
struct Finish {
  Matrix c;       ///< rows of unit stride
  Matrix before;  ///< receives the input of the activation; no data: not requested
  const void* bias = nullptr;
  DType bias_dtype = DType::kF32;
  std::int64_t bias_stride = 1;
  double alpha = 1;
  double beta = 0;
  ActivationKind activation = ActivationKind::kNone;

  /// The same for a part that begins `row` rows and `column` columns into the tile.
  Finish at(std::int64_t row, std::int64_t column) const;
};

/// Finishes a product of f32 or f64 with rows of `stride` elements.
void finish(const Finish& how, const float* product, std::int64_t stride, std::int64_t m,
            std::int64_t n);
void finish(const Finish& how, const double* product, std::int64_t stride, std::int64_t m,
            std::int64_t n);

/// y = activation(x) for matrices of one dtype with rows of unit stride; they may be the same.
void activate(ActivationKind activation, const Matrix& x, const Matrix& y, std::int64_t m,
              std::int64_t n);

}  // namespace tessera::cpu
