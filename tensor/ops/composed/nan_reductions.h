#pragma once

/// The definitions of nansum and nanmean of ops/reduce.h. For the .cc files that instantiate them.

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/mask.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera::composed {

template <class V>
V nansum(const V& x, const DimList& dims, bool keep_dims) {
  const Tensor& elements = plain(x);
  ops::check_defined("nansum", "the tensor", elements);
  dim_mask(dims, elements.ndim(), "nansum");
  if (!is_floating(elements.dtype())) return sum(x, dims, keep_dims);
  return sum(masked_fill(x, isnan(elements), 0), dims, keep_dims);
}

template <class V>
V nanmean(const V& x, const DimList& dims, bool keep_dims) {
  const Tensor& elements = floating("nanmean", x);
  dim_mask(dims, elements.ndim(), "nanmean");
  const Tensor missing = isnan(elements);
  return rounded_once(x, [&](const V& wide) {
    const Tensor count = cast(sum(logical_not(missing), dims, keep_dims), wide.dtype());
    return div(sum(masked_fill(wide, missing, 0), dims, keep_dims), count);
  });
}

}  // namespace tessera::composed
