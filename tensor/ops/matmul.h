#pragma once

/// Matrix products. On CPUs with AVX-512 f32, bf16 and f16 use oneDNN, on others our own code; f64
/// uses Eigen. 16-bit operands are multiplied with sums in f32, and each element is rounded once.
///
/// A product is split into tiles by shape and dtype alone, and the tiles are distributed over
/// threads. The bits therefore depend on shapes and values, with AVX-512 also on strides (oneDNN
/// chooses its code by the layout of a tile), and never on the number of threads or the batch size.
/// In a product of one row or column they depend on whether the matrix lies by rows or by columns.
/// Operands may be any strided view: a transposed or broadcast operand needs no copy; one without a
/// unit stride in its last two dims is copied.
///
/// Operands are floating, with one dtype and device. Anything else is an InvalidArgument, and so
/// are incompatible shapes.

#include "tessera/tensor/activation.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// As in PyTorch: the last two dims are matrices, [..., m, k] x [..., k, n] -> [..., m, n]; leading
/// dims broadcast. A vector [k] is a row on the left and a column on the right, and its dim is
/// removed: two vectors give a 0-d tensor. k = 0 gives zeros.
///
/// If b is a single matrix, the leading dims of a count as rows, as in linear.
Tensor matmul(const Tensor& a, const Tensor& b);

struct MatmulIntoOptions {
  double alpha = 1;
  double beta = 0;  ///< 0: out is not read; 1: accumulate. Any value is legal.
};
/// out = alpha * a b + beta * out, in place, for operands of at least 2 dims. out has the product's
/// shape, any floating dtype, rows or columns of unit stride, and no overlapping elements. The sum
/// is rounded once, to out's dtype: bf16 products are accumulated into an f32 gradient without
/// extra rounding.
void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b,
                 const MatmulIntoOptions& options);

/// activation(x W^T + b) over the last dim: x [..., in], weight [out, in], bias [out] or undefined
/// -> [..., out]. Gives the bits of linear followed by the activation as a separate operation; on a
/// GPU, where results of 16 bits are rounded at different places, some may be a neighbour's.
/// `pitch`: of the result's rows; the values are the same.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              ActivationKind activation = ActivationKind::kNone,
              RowPitch pitch = RowPitch::kPacked);

struct ActivatedLinear {
  Tensor result;
  Tensor before;  ///< x W^T + b; the same tensor as `result` for kNone
};
/// The same; also returns the input of the activation, which its derivative reads.
ActivatedLinear linear_and_before(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                  ActivationKind activation, RowPitch pitch = RowPitch::kPacked);

/// Batched product: a [b, m, k] x b [b, k, n] -> [b, m, n], without broadcasting.
Tensor bmm(const Tensor& a, const Tensor& b);

struct AddmmOptions {
  double alpha = 1;
  double beta = 1;  ///< 0: c is not read
};
/// beta * c + alpha * a b: a [m, k], b [k, n]; c broadcasts to [m, n] and has their dtype.
Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
/// The same for batches, as in bmm: a [b, m, k], b [b, k, n]; c broadcasts to [b, m, n].
Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});

Tensor mv(const Tensor& a, const Tensor& x);     ///< [m, k] x [k] -> [m]
Tensor dot(const Tensor& a, const Tensor& b);    ///< [k] x [k] -> 0-d
Tensor outer(const Tensor& a, const Tensor& b);  ///< [m] x [n] -> [m, n]: a[i] b[j]

}  // namespace tessera
