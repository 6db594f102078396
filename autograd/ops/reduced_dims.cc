#include "tessera/autograd/ops/reduced_dims.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::detail {
namespace {

DimMask reduced_mask(const Shape& shape, const DimList& dims) {
  DimMask mask = dim_mask(dims, shape.ndim(), "reduction");
  if (dims.empty()) mask.fill(true);
  return mask;
}

}  // namespace

Shape kept_shape(const Shape& shape, const DimList& dims) {
  const DimMask mask = reduced_mask(shape, dims);
  Shape kept = shape;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (mask[static_cast<std::size_t>(dim)]) kept[dim] = 1;
  }
  return kept;
}

Variable spread(const Variable& dy, const Shape& kept, const Shape& from) {
  return expand(reshape(dy, kept), from);
}

Tensor shares(const Tensor& mask, const Shape& kept, DType dtype) {
  const Tensor set = cast(mask, dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  return cast(div(set, sum_to_shape(set, kept)), dtype);
}

Rows::Rows(const Shape& from, const DimList& dims)
    : from_(from), reduced_(reduced_mask(from, dims)) {
  for (int dim = 0; dim < from.ndim(); ++dim)
    (reduced_[static_cast<std::size_t>(dim)] ? count_ : results_) *= from[dim];
}

Variable Rows::join(const Variable& x) const {
  Variable out = x;
  int at = 0;
  for (int dim = 0; dim < from_.ndim(); ++dim) {
    if (reduced_[static_cast<std::size_t>(dim)]) {
      out = movedim(out, at, from_.ndim() - 1);
    } else {
      ++at;
    }
  }
  return reshape(out, {results_, count_});
}

Variable Rows::restore(const Variable& rows) const {
  Shape joined;
  for (bool reduced : {false, true}) {
    for (int dim = 0; dim < from_.ndim(); ++dim) {
      if (reduced_[static_cast<std::size_t>(dim)] == reduced) joined.push_back(from_[dim]);
    }
  }
  Variable out = reshape(rows, joined);
  for (int dim = from_.ndim() - 1; dim >= 0; --dim) {
    if (!reduced_[static_cast<std::size_t>(dim)]) continue;
    int kept_before = 0;
    for (int d = 0; d < dim; ++d) kept_before += reduced_[static_cast<std::size_t>(d)] ? 0 : 1;
    out = movedim(out, from_.ndim() - 1, kept_before);
  }
  return out;
}

}  // namespace tessera::detail
