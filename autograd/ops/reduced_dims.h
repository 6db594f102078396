#pragma once

/// What derivatives of reductions share. For autograd's own .cc files. All twice.

#include "tessera/autograd/variable.h"
#include "tessera/tensor/dims.h"

namespace tessera::detail {

/// The result's shape if every reduced dim had stayed, with extent 1. The operation has checked
/// `dims`.
Shape kept_shape(const Shape& shape, const DimList& dims);
/// The gradient of a result, repeated for all the elements that made it.
Variable spread(const Variable& dy, const Shape& kept, const Shape& from);
/// 1 / count where the mask (of one number a result) is set, else 0: equal parts of a gradient.
Tensor shares(const Tensor& mask, const Shape& kept, DType dtype);

/// x as [results, elements of one], and back.
class Rows {
 public:
  Rows(const Shape& from, const DimList& dims);
  Variable join(const Variable& x) const;
  Variable restore(const Variable& rows) const;

 private:
  Shape from_;
  DimMask reduced_;
  std::int64_t results_ = 1;
  std::int64_t count_ = 1;
};

}  // namespace tessera::detail
