#pragma once

/// Reductions: fixed blocks added in a fixed order, so the bits depend on the shape only.

#include <span>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// Sum over `dims` (all when empty); the dims disappear unless keep_dims. Sums of no elements are
/// 0. f32 sums accumulate in f32 blocks; sums of integers are i64.
Tensor sum(const Tensor& x, std::initializer_list<int> dims = {}, bool keep_dims = false);
/// sum / count. Floating only; the mean of no elements is NaN.
Tensor mean(const Tensor& x, std::initializer_list<int> dims = {}, bool keep_dims = false);
/// Sum of squares of all elements, accumulated and returned in f64, 0-d.
Tensor sum_of_squares(const Tensor& x);
/// Index of the largest element along the last dim (the first of equals; NaN counts as largest), as
/// i64. Throws InvalidArgument when that dim is empty.
Tensor argmax(const Tensor& x);
/// Sums `x` down to `shape`, undoing a broadcast: the gradient of expand.
Tensor sum_to_shape(const Tensor& x, const Shape& shape);

}  // namespace tessera
