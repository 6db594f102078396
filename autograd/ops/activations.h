#pragma once

/// The differentiable counterparts of tensor/ops/activations.h: same names, shapes, dtypes and errors, on Variable.
/// At a kink the derivative is PyTorch's: 0 for functions that are flat on one side. At NaN it is NaN, or a slope
/// that hides nothing (1 for hardtanh and its like); but hardsigmoid's is 0, as PyTorch's. All twice.

#include "tessera/autograd/variable.h"

namespace tessera {

Variable hardtanh(const Variable& x, double min_val = -1, double max_val = 1);
Variable relu6(const Variable& x);
Variable leaky_relu(const Variable& x, double negative_slope = 0.01);
Variable prelu(const Variable& x, const Variable& weight);
Variable elu(const Variable& x, double alpha = 1);
Variable selu(const Variable& x);
Variable celu(const Variable& x, double alpha = 1);
Variable mish(const Variable& x);
Variable logsigmoid(const Variable& x);
Variable hardsigmoid(const Variable& x);
Variable hardswish(const Variable& x);
Variable softsign(const Variable& x);
Variable tanhshrink(const Variable& x);
Variable hardshrink(const Variable& x, double lambd = 0.5);
Variable softshrink(const Variable& x, double lambd = 0.5);
Variable threshold(const Variable& x, double threshold, double value);
Variable glu(const Variable& x, int dim = -1);
Variable swiglu(const Variable& gate, const Variable& up);
Variable softmin(const Variable& x, int dim = -1);

}  // namespace tessera
