#pragma once

/// Products made of those in ops/matmul.h: sums with products, powers and chains of matrices, and products of vectors.
///
/// Operands are floating, of one dtype and device, with any strides, else InvalidArgument, as for shapes that do not fit;
/// but kron and cross take all dtypes and promote. Contractions of several dims are in ops/einsum.h.

#include <cstdint>
#include <vector>

#include "tessera/tensor/ops/matmul.h"

namespace tessera {

/// beta * c + alpha * the sum of a[i] b[i] over the batch: a [b, m, k], b [b, k, n]; c broadcasts to [m, n].
Tensor addbmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
/// beta * c + alpha * a x: a [m, k], x [k]; c broadcasts to [m].
Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& x, const AddmmOptions& options = {});
/// beta * c + alpha * the outer product of a [m] and b [n]; c broadcasts to [m, n].
Tensor addr(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});

/// The sum of a[i] b[i]: [k] x [k] -> 0-d. As dot, because there are no complex numbers.
Tensor vdot(const Tensor& a, const Tensor& b);

/// The Kronecker product: every element of a times all of b. [m, n] and [p, q] give [m p, n q]; for any equal number of
/// dims up to 4, and fewer dims get leading ones.
Tensor kron(const Tensor& a, const Tensor& b);

/// The vector product over `dim`, of extent 3. Both have as many dims; the others broadcast. 16-bit dtypes are computed in
/// f32 and rounded once. Not for bool.
Tensor cross(const Tensor& a, const Tensor& b, int dim = -1);

/// x x ... x, `power` times, of square matrices [..., n, n]: by repeated squaring. 0 gives the identity; below 0 is an
/// InvalidArgument.
Tensor matrix_power(const Tensor& x, std::int64_t power);

/// The product of at least two matrices, in the order with the fewest multiplications. The first may be a vector, which is
/// then a row, and the last, which is then a column; the result lacks their dims.
Tensor multi_dot(const std::vector<Tensor>& matrices);

/// The covariances of variables: x [variables, observations] -> [variables, variables]; of one variable [observations] or
/// 0-d -> 0-d. Sums of products of deviations from the mean, divided by the number of observations - correction, which is at
/// least 0. 16-bit dtypes are computed in f32 and rounded once.
Tensor cov(const Tensor& x, double correction = 1);
/// The correlation coefficients: cov divided by the standard deviations of both variables, and clamped to [-1, 1]. NaN
/// for a variable that is constant.
Tensor corrcoef(const Tensor& x);

}  // namespace tessera
