#pragma once

/// Running results along one dim: element i of the result is made of elements 0 to i.
///
/// One element after another; floating dtypes are computed in f64 and rounded once, integers and
/// bool in i64, which is also the dtype of their sums and products. A negative `dim` counts from the
/// back; a 0-d tensor counts as one element along dim 0. All functions throw InvalidArgument for a
/// dim that does not exist.

#include <optional>

#include "tessera/tensor/ops/order.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

struct ScanOptions {
  bool reverse = false;  ///< from the last element to the first
  /// x is converted to it first, and the result has it
  std::optional<DType> dtype = {};
};
Tensor cumsum(const Tensor& x, int dim, const ScanOptions& options = {});
Tensor cumprod(const Tensor& x, int dim, const ScanOptions& options = {});

struct LogcumsumexpOptions {
  bool reverse = false;
};
/// log(exp(x[0]) + ... + exp(x[i])), without overflow: -inf while all are -inf. Floating only.
Tensor logcumsumexp(const Tensor& x, int dim, const LogcumsumexpOptions& options = {});

/// The largest and the smallest element so far, in x's dtype, and its position, the last of equal
/// ones; from the first NaN on NaN.
ValuesAndIndices cummax(const Tensor& x, int dim);
ValuesAndIndices cummin(const Tensor& x, int dim);

}  // namespace tessera
