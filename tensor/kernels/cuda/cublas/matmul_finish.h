#pragma once

/// The last steps of a product after the library's call: matmul_finish.cu. Plain data, so that
/// plans can be made and tested without a GPU.

#include <cstdint>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/matmul.h"

namespace tessera::cuda {

/// Matrices with rows of unit stride; strides in elements.
struct FinishMatrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t row_stride = 0;
  std::int64_t batch_stride = 0;

  TESSERA_HD std::int64_t offset(std::int64_t matrix, std::int64_t row, std::int64_t column) const {
    return matrix * batch_stride + row * row_stride + column;
  }
  bool is_dense(std::int64_t rows, std::int64_t columns, std::int64_t batch) const {
    return (rows == 1 || row_stride == columns) && (batch == 1 || batch_stride == rows * columns);
  }
};

/// result = activation(x), x = alpha * product + bias + beta * result. x is rounded to the result's
/// dtype and stored in `before`. In place if `product` is `before` or `result`.
struct FinishWork {
  FinishMatrix product;  ///< no data: zeros
  FinishMatrix before;   ///< no data: not requested
  FinishMatrix result;
  const void* bias = nullptr;  ///< [columns]; may be null
  DType bias_dtype = DType::kF32;
  std::int64_t bias_stride = 1;  ///< 1 or 0
  double alpha = 1;
  double beta = 0;
  ActivationKind activation = ActivationKind::kNone;
  std::int64_t batch = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 1;

  /// True if the library has done everything before the activation, and `product` has the result's
  /// dtype.
  bool only_activates() const {
    return product.data != nullptr && product.dtype == result.dtype && before.data == nullptr &&
           bias == nullptr && alpha == 1 && beta == 0 && activation != ActivationKind::kNone;
  }
  std::int64_t elements() const { return batch * rows * columns; }
  /// Computed in f64 if any dtype is f64, else in f32, as on the CPU.
  bool in_f64() const {
    return product.dtype == DType::kF64 || result.dtype == DType::kF64 ||
           (bias != nullptr && bias_dtype == DType::kF64);
  }
};

/// The same work as a single row, if nothing has gaps and no bias depends on the column: then no
/// index needs a division.
inline FinishWork in_one_row(FinishWork work) {
  const auto dense = [&](const FinishMatrix& matrix) {
    return matrix.data == nullptr || matrix.is_dense(work.rows, work.columns, work.batch);
  };
  if (work.bias != nullptr || !dense(work.product) || !dense(work.before) || !dense(work.result))
    return work;
  work.columns = work.elements();
  work.rows = work.batch = 1;
  return work;
}

/// Whether rows begin and end with full packs of `count` elements of the result. A single row may
/// end with a partial pack.
inline bool takes_packs(const FinishWork& work, std::int64_t count) {
  const auto fits = [&](const FinishMatrix& matrix) {
    return matrix.data == nullptr ||
           (is_pack_aligned(matrix.data) && (work.rows == 1 || matrix.row_stride % count == 0) &&
            (work.batch == 1 || matrix.batch_stride % count == 0));
  };
  const bool one_row = work.rows == 1 && work.batch == 1;
  return (one_row || work.columns % count == 0) && fits(work.product) && fits(work.before) &&
         fits(work.result);
}

template <class C>
TESSERA_HD C activate(ActivationKind activation, C x) {
  switch (activation) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return functors::Relu{}(x);
    case ActivationKind::kGelu:
      return functors::Gelu{}(x);
    case ActivationKind::kGeluTanh:
      return functors::GeluTanh{}(x);
    case ActivationKind::kSilu:
      return functors::Silu{}(x);
  }
  return x;
}

/// Issues the work on `stream` of the current GPU; does nothing for no elements.
void finish_products(CudaStream stream, const FinishWork& work);
/// Writes `bias` [n] to `to` without gaps, in `dtype`.
void convert_bias(CudaStream stream, const ConstView& bias, void* to, DType dtype);

}  // namespace tessera::cuda
