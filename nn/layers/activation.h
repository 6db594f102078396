#pragma once

/// Activations as layers, for containers. Elementwise, any shape, no parameters; in code of your
/// own call relu(x) and gelu(x) of autograd/ops.h.

#include "tessera/nn/layer.h"

namespace tessera::nn {

/// max(x, 0); NaN stays NaN.
class ReLU final : public Layer<ReLU> {
 public:
  Variable forward(const Variable& x);
};

/// x * Phi(x), Phi the standard normal distribution function: the exact form, through erf.
class GELU final : public Layer<GELU> {
 public:
  Variable forward(const Variable& x);
};

}  // namespace tessera::nn
