#pragma once

/// The definitions of those functions of ops/diagonal.h that have derivatives. For the .cc files
/// that instantiate them.

#include <algorithm>
#include <cstdlib>

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/diagonal.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera::composed {

/// [..., n] -> [..., n + |offset|, n + |offset|]: x on a diagonal of zeros. Specialized where the
/// templates below are instantiated: a variable's has a derivative.
template <class V>
V on_diagonal(const V& x, std::int64_t offset);

template <class V>
V diag_embed(const V& x, std::int64_t offset, int dim0, int dim1) {
  constexpr const char* kWhere = "diag_embed";
  ops::check_defined(kWhere, "the tensor", plain(x));
  TESSERA_CHECK(x.ndim() >= 1, kWhere, "needs at least 1 dim, got a 0-d tensor; unsqueeze it");
  const int row = normalize_dim(dim0, x.ndim() + 1, kWhere),
            column = normalize_dim(dim1, x.ndim() + 1, kWhere);
  TESSERA_CHECK(row != column, kWhere, "both dims are {}; name two different ones", row);
  const V matrices = on_diagonal(x, offset);
  if (row == x.ndim() - 1 && column == x.ndim()) return matrices;
  return contiguous(movedim(matrices, {-2, -1}, {row, column}));
}

template <class V>
V diag(const V& x, std::int64_t offset) {
  ops::check_defined("diag", "the tensor", plain(x));
  TESSERA_CHECK(x.ndim() == 1 || x.ndim() == 2, "diag",
                "needs a matrix or a tensor of 1 dim, got shape {}", x.shape().str());
  return x.ndim() == 1 ? on_diagonal(x, offset) : clone(diagonal(x, offset, 0, 1));
}

template <class V>
V trace(const V& x) {
  ops::check_defined("trace", "the tensor", plain(x));
  TESSERA_CHECK(x.ndim() == 2, "trace", "needs a matrix, got shape {}", x.shape().str());
  TESSERA_CHECK(x.dtype() != DType::kBool, "trace", "bool values cannot be added; cast them first");
  return sum(diagonal(x, 0, 0, 1));
}

}  // namespace tessera::composed
