#pragma once

/// Matrix products. f32 by oneDNN, f64 by Eigen; both under the fixed-tile rule: the output is cut
/// into tiles and the inner dim into chunks by shape alone, and threads share out tiles. The bits
/// depend on shapes, values and strides (oneDNN picks its code by the layout of a tile), never on
/// threads.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// a [m, k] x b [k, n] -> [m, n]. Operands may be any strided view; a transposed operand costs no
/// copy. k = 0 gives zeros. Throws InvalidArgument unless both are 2-D, floating, of one dtype and
/// device, and inner dims agree.
Tensor matmul(const Tensor& a, const Tensor& b);

struct MatmulIntoOptions {
  double alpha = 1;
  double beta = 0;  ///< 0: out is not read; 1: accumulate. Other values are legal.
};
/// out = alpha * a b + beta * out, in place; out [m, n] must have rows or columns of unit stride.
void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b,
                 const MatmulIntoOptions& options);

/// x W^T + b over the last dim: x [..., in], weight [out, in], bias [out] or undefined -> [...,
/// out].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace tessera
