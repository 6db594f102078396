#pragma once

/// Operations along one dim, as in PyTorch also of a 0-d tensor, which counts as one element along
/// dim 0. Private to this folder.

#include <algorithm>
#include <optional>

#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/tensor.h"

namespace tessera::ops {

/// `dim` counted from the front; of a 0-d tensor 0 and -1 give 0. Throws as normalize_dim.
inline int along_dim(const char* where, const Tensor& x, int dim) {
  return normalize_dim(dim, std::max(x.ndim(), 1), where);
}

/// x, or the one element of a 0-d tensor as [1].
inline Tensor as_line(const Tensor& x) { return x.ndim() == 0 ? x.view({1}) : x; }

/// x converted to `dtype`, if one is given, for a kernel that computes in f64, or in f32 for 16
/// bits: those it converts itself.
inline Tensor converted(const Tensor& x, std::optional<DType> dtype) {
  if (!dtype || *dtype == x.dtype()) return x;
  const bool as_computed = is_floating(x.dtype()) && compute_dtype(x.dtype()) == *dtype;
  return as_computed ? x : cast(x, *dtype);
}

}  // namespace tessera::ops
