#pragma once

/// Activations that are made of other operations, as torch.nn.functional has them; relu, gelu, silu and so on are
/// functions of one number in ops/elementwise.h.
///
/// x is floating, of any shape and strides; the result has its shape (but for glu) and dtype. 16-bit dtypes are
/// computed in f32 and rounded once. NaN stays NaN, except that hardsigmoid's slope there is 0. All functions throw
/// InvalidArgument for other dtypes.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// min(max(x, min_val), max_val). Throws InvalidArgument unless min_val < max_val.
Tensor hardtanh(const Tensor& x, double min_val = -1, double max_val = 1);
Tensor relu6(const Tensor& x);  ///< min(max(x, 0), 6)
/// x where x > 0, else negative_slope x.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// x where x > 0, else weight x. weight [1], one slope for all, or [channels], of which x [samples, channels, ...]
/// has as many, else InvalidArgument. The result has the dtype that both promote to.
Tensor prelu(const Tensor& x, const Tensor& weight);
/// max(x, 0) + alpha (exp(min(x, 0)) - 1).
Tensor elu(const Tensor& x, double alpha = 1);
/// elu with alpha = 1.6733, all times 1.0507.
Tensor selu(const Tensor& x);
/// max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1). Throws InvalidArgument for alpha = 0.
Tensor celu(const Tensor& x, double alpha = 1);
Tensor mish(const Tensor& x);         ///< x tanh(softplus(x))
Tensor logsigmoid(const Tensor& x);   ///< log(sigmoid(x)), without overflow
Tensor hardsigmoid(const Tensor& x);  ///< min(max(x + 3, 0), 6) / 6
Tensor hardswish(const Tensor& x);    ///< x min(max(x + 3, 0), 6) / 6
Tensor softsign(const Tensor& x);     ///< x / (1 + |x|)
Tensor tanhshrink(const Tensor& x);   ///< x - tanh(x)
/// x where |x| > lambd, else 0.
Tensor hardshrink(const Tensor& x, double lambd = 0.5);
/// x - lambd above lambd, x + lambd below -lambd, else 0. Throws InvalidArgument for lambd < 0.
Tensor softshrink(const Tensor& x, double lambd = 0.5);
/// x where x > threshold, else value.
Tensor threshold(const Tensor& x, double threshold, double value);
/// a sigmoid(b), a and b the halves of `dim`. Throws InvalidArgument for an odd extent, and for a dim that does not
/// exist.
Tensor glu(const Tensor& x, int dim = -1);
/// silu(gate) * up, in one pass (Shazeer, "GLU variants improve transformer", 2020), with the bits of
/// the two operations. gate and up have one shape and one floating dtype.
Tensor swiglu(const Tensor& gate, const Tensor& up);
struct SwigluGradients {
  Tensor gate;  ///< undefined if it was not asked for
  Tensor up;
};
struct SwigluBackwardOptions {
  bool needs_gate = true;
  bool needs_up = true;
};
/// The derivative of swiglu, in one pass; dy is like gate and up.
SwigluGradients swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                                const SwigluBackwardOptions& options = {});
/// softmax(-x, dim).
Tensor softmin(const Tensor& x, int dim = -1);

}  // namespace tessera
