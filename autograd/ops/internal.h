#pragma once

/// Differentiable helpers that derivatives are made of. For autograd's own .cc files.

#include "tessera/autograd/function.h"
#include "tessera/autograd/variable.h"
#include "tessera/tensor/activation.h"

namespace tessera::detail {

/// `x` kept only where someone will ask for it.
inline SavedVariable save_if(bool wanted, const Variable& x, const char* operation) {
  return wanted ? SavedVariable(x, operation) : SavedVariable();
}

/// activation(x), whose value `y` is known already. The derivative of kRelu does not read x.
Variable activated(Activation activation, const Variable& x, const Tensor& y);

}  // namespace tessera::detail
