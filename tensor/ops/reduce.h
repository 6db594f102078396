#pragma once

/// Reductions: blocks of fixed size are folded in a fixed order, so the bits depend only on the
/// shape.
///
/// They reduce `dims`, or all dims if none is listed; reduced dims are removed unless keep_dims.
/// Results of floating tensors keep the dtype; 16-bit dtypes are computed in f32 or f64 and rounded
/// once. "Floating only" means InvalidArgument for other dtypes. All functions throw
/// InvalidArgument for dims that do not exist or are listed twice.

#include <vector>
#include "tessera/tensor/dims.h"

#include "tessera/tensor/tensor.h"

namespace tessera {

/// 0 for no elements. f32 is summed in blocks of f32; sums of integers and bool are i64.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
/// sum / count. Floating only; the mean of no elements is NaN.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
/// 1 for no elements. Products of integers and bool are i64 and wrap around.
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
/// The largest and the smallest element, in the dtype of x; NaN if there is a NaN. Throw
/// InvalidArgument for no elements. For the position see ops/order.h.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
/// bool: whether any element, or every element, is nonzero; NaN is nonzero. For no elements false
/// and true.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
/// log(sum(exp(x))), without overflow: -inf for no elements and if all are -inf, inf if one is inf.
/// Floating only.
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);

struct VarOptions {
  double correction = 1;  ///< divisor: count - correction, at least 0; 1 is the sample variance
  bool keep_dims = false;
};
struct VarMean {
  Tensor var;
  Tensor mean;
};
/// The variance and its square root, in two passes: the mean in f64, then the deviations from it.
/// NaN if both the divisor and the deviations are 0. Floating only.
Tensor var(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
Tensor stddev(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
VarMean var_mean(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});

struct NormOptions {
  /// infinity: the largest magnitude; -infinity: the smallest; 0: the number of nonzero elements
  double p = 2;
  bool keep_dims = false;
};
/// (sum |x|^p)^(1/p). Squares and powers in f64. Floating only. Throws InvalidArgument if p is NaN,
/// or infinite for no elements.
Tensor norm(const Tensor& x, const Dims& dims = {}, const NormOptions& options = {});

/// Sum of the squares of all elements, accumulated and returned in f64, 0-d. Floating only.
Tensor sum_of_squares(const Tensor& x);
/// The total over several tensors, in their order, in one kernel: the same bits as adding the
/// single results one after another, from 0. Floating dtypes, which may differ; one device. Strided
/// tensors are copied first. Throws InvalidArgument for an empty list.
Tensor sum_of_squares(const std::vector<Tensor>& tensors);
/// Sums `x` down to `shape`, the inverse of broadcasting: the gradient of expand.
Tensor sum_to_shape(const Tensor& x, const Shape& shape);

struct CumsumOptions {
  bool reverse = false;  ///< from the last element to the first
};
/// Running sums along `dim`: y[i] = x[0] + ... + x[i]. Added one after another; floating dtypes in
/// f64; integers and bool in i64.
Tensor cumsum(const Tensor& x, int dim, const CumsumOptions& options = {});

}  // namespace tessera
