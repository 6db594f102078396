#pragma once

/// The definition of the transposed convolutions of ops/conv.h. For the .cc files that instantiate it.

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/conv.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera::composed {

/// The convolution whose input gradient a transposed convolution is.
struct TransposedConv {
  Shape y;          ///< shape of the result
  Size2d more = 0;  ///< zeros that x gets at its end: for an output_padding of a stride or more
  Conv2dOptions convolution;
};
/// Checks the operands, of `ndim` dims, for the operation `where`. Defined in ops/conv.cc.
TransposedConv transposed_conv(const char* where, int ndim, const Tensor& x, const Tensor& weight,
                               const Tensor& bias, const ConvTranspose2dOptions& options);

/// `input_gradient(dy, weight, shape, options)` is conv_backward_input of V.
template <class V, class InputGradient>
V conv_transpose(const char* where, int ndim, const V& x, const V& weight, const V& bias,
                 const ConvTranspose2dOptions& options, const InputGradient& input_gradient) {
  const Tensor none;
  const TransposedConv plan = transposed_conv(where, ndim, plain(x), plain(weight),
                                              bias.defined() ? plain(bias) : none, options);
  const Size2d more = plan.more;
  const V padded = more == Size2d(0) ? x
                   : ndim == 3       ? pad(x, {{0, more.width}})
                                     : pad(x, {{0, more.height}, {0, more.width}});
  const V y = input_gradient(padded, weight, plan.y, plan.convolution);
  if (!bias.defined()) return y;
  return add(y, reshape(bias, Shape::filled(ndim - 1, 1).with(0, bias.dim(0))));
}

}  // namespace tessera::composed
