#pragma once

/// Reductions: blocks of fixed size are folded in a fixed order, so the bits depend only on the
/// shape.
///
/// They reduce `dims`, or all dims if none is listed; reduced dims are removed unless keep_dims.
/// Results of floating tensors keep the dtype; 16-bit dtypes are computed in f32 or f64 and rounded
/// once. "Floating only" means InvalidArgument for other dtypes. All functions throw
/// InvalidArgument for dims that do not exist or are listed twice. A 0-d tensor counts as one
/// element along dim 0.

#include <optional>
#include <vector>

#include "tessera/tensor/dims.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

struct ReduceOptions {
  bool keep_dims = false;
  /// x is converted to it first, and the result has it
  std::optional<DType> dtype = {};
};
/// 0 for no elements. f32 is summed in blocks of f32; sums of integers and bool are i64.
Tensor sum(const Tensor& x, const DimList& dims = {}, bool keep_dims = false);
Tensor sum(const Tensor& x, const DimList& dims, const ReduceOptions& options);
/// sum / count. Floating only; the mean of no elements is NaN.
Tensor mean(const Tensor& x, const DimList& dims = {}, bool keep_dims = false);
Tensor mean(const Tensor& x, const DimList& dims, const ReduceOptions& options);
/// 1 for no elements. Products of integers and bool are i64 and wrap around.
Tensor prod(const Tensor& x, const DimList& dims = {}, bool keep_dims = false);
Tensor prod(const Tensor& x, const DimList& dims, const ReduceOptions& options);
/// The largest and the smallest element, in the dtype of x; NaN if there is a NaN. Throw
/// InvalidArgument for no elements. For the position see ops/order.h.
Tensor amax(const Tensor& x, const DimList& dims = {}, bool keep_dims = false);
Tensor amin(const Tensor& x, const DimList& dims = {}, bool keep_dims = false);
struct MinMax {
  Tensor min;
  Tensor max;
};
/// Both, as amin and amax.
MinMax aminmax(const Tensor& x, const DimList& dims = {}, bool keep_dims = false);
/// sum and mean of the elements that are not NaN; the mean of none is NaN. nanmean: floating only.
Tensor nansum(const Tensor& x, const DimList& dims = {}, bool keep_dims = false);
Tensor nanmean(const Tensor& x, const DimList& dims = {}, bool keep_dims = false);
/// The number of elements that are not 0, i64; NaN is not 0.
Tensor count_nonzero(const Tensor& x, const DimList& dims = {}, bool keep_dims = false);
/// any() and all() are in tensor/tensor.h.
/// log(sum(exp(x))), without overflow: -inf for no elements and if all are -inf, inf if one is inf.
/// Floating only.
Tensor logsumexp(const Tensor& x, const DimList& dims = {}, bool keep_dims = false);

struct VarOptions {
  double correction = 1;  ///< divisor: count - correction, at least 0; 1 is the sample variance
  bool keep_dims = false;
};
struct VarMean {
  Tensor var;
  Tensor mean;
};
struct StdMean {
  Tensor stddev;
  Tensor mean;
};
/// The variance and its square root, in two passes: the mean in f64, then the deviations from it.
/// NaN if both the divisor and the deviations are 0. Floating only.
Tensor var(const Tensor& x, const DimList& dims = {}, const VarOptions& options = {});
Tensor stddev(const Tensor& x, const DimList& dims = {}, const VarOptions& options = {});
VarMean var_mean(const Tensor& x, const DimList& dims = {}, const VarOptions& options = {});
StdMean std_mean(const Tensor& x, const DimList& dims = {}, const VarOptions& options = {});

struct NormOptions {
  /// infinity: the largest magnitude; -infinity: the smallest; 0: the number of nonzero elements
  double p = 2;
  bool keep_dims = false;
};
/// (sum |x|^p)^(1/p). Squares and powers in f64. Floating only. Throws InvalidArgument if p is NaN,
/// or infinite for no elements.
Tensor norm(const Tensor& x, const DimList& dims = {}, const NormOptions& options = {});

/// Sum of the squares of all elements, accumulated and returned in f64, 0-d. Floating only.
Tensor sum_of_squares(const Tensor& x);
/// The total over several tensors, in their order, in one kernel: the same bits as adding the
/// single results one after another, from 0. Floating dtypes, which may differ; one device. Strided
/// tensors are copied first. Throws InvalidArgument for an empty list.
Tensor sum_of_squares(const std::vector<Tensor>& tensors);
/// out = beta * out + the sum of the rows of x, in f32: x is a bf16 or f16 matrix, out an f32 vector
/// as long as its rows, and contiguous. A CPU adds row by row, a GPU chunks of rows. If beta is 0, out
/// is not read.
void sum_rows_(const Tensor& out, const Tensor& x, double beta = 0);
/// Sums `x` down to `shape`, the inverse of broadcasting: the gradient of expand.
Tensor sum_to_shape(const Tensor& x, const Shape& shape);

}  // namespace tessera
