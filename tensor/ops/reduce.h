#pragma once

/// Reductions: fixed blocks folded in a fixed order, so the bits depend on the shape only.
///
/// They run over `dims`, all when none is listed; the dims disappear unless keep_dims. Results of
/// floating tensors keep the dtype; 16-bit types are computed in f32 or f64 and rounded once.
/// "Floating only": InvalidArgument for other dtypes. All throw InvalidArgument for dims that do
/// not exist or are listed twice.

#include <vector>
#include "tessera/tensor/dims.h"

#include "tessera/tensor/tensor.h"

namespace tessera {

/// 0 for no elements. f32 sums accumulate in f32 blocks; sums of integers and bool are i64.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
/// sum / count. Floating only; the mean of no elements is NaN.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
/// 1 for no elements. Products of integers and bool are i64 and wrap around.
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
/// The largest and the smallest element, in the dtype of x; NaN wins over numbers. Throw
/// InvalidArgument where there is no element to choose. See ops/order.h for where it stands.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
/// As bool: whether some element, or every one, is not zero; NaN is not zero. For no elements false
/// and true.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);
/// log(sum(exp(x))), without overflow: -inf for no elements and where all are -inf, inf where one
/// is inf. Floating only.
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, bool keep_dims = false);

struct VarOptions {
  double correction = 1;  ///< divisor: count - correction, at least 0; 1 is the sample variance
  bool keep_dims = false;
};
struct VarMean {
  Tensor var;
  Tensor mean;
};
/// Mean squared deviation from the mean and its root, in two passes: the mean in f64, then the
/// deviations from it. NaN where the divisor and the deviations are 0. Floating only.
Tensor var(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
Tensor stddev(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
VarMean var_mean(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});

struct NormOptions {
  double p =
      2;  ///< infinity: the largest magnitude; -infinity: the smallest; 0: how many are not 0
  bool keep_dims = false;
};
/// (sum |x|^p)^(1/p). Squares and powers in f64. Floating only. Throws InvalidArgument for a p that
/// is NaN, and for an infinite one where there are no elements.
Tensor norm(const Tensor& x, const Dims& dims = {}, const NormOptions& options = {});

/// Sum of squares of all elements, accumulated and returned in f64, 0-d. Floating only.
Tensor sum_of_squares(const Tensor& x);
/// The sum of these for several tensors, in their order, in one kernel: the bits of adding the
/// results up one after another, from 0. Of any floating dtypes, one device. Strided ones are
/// copied first. Throws InvalidArgument for none.
Tensor sum_of_squares(const std::vector<Tensor>& tensors);
/// Sums `x` down to `shape`, undoing a broadcast: the gradient of expand.
Tensor sum_to_shape(const Tensor& x, const Shape& shape);

struct CumsumOptions {
  bool reverse = false;  ///< from the last element to the first
};
/// Running sums along `dim`: y[i] = x[0] + ... + x[i]. Added one after another, floating dtypes in
/// f64; of integers and bool i64.
Tensor cumsum(const Tensor& x, int dim, const CumsumOptions& options = {});

}  // namespace tessera
