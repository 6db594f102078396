#pragma once

/// Differentiable helpers that derivatives are made of. For autograd's own .cc files.

#include "tessera/autograd/function.h"
#include "tessera/autograd/variable.h"

namespace tessera::detail {

/// `x` kept only where someone will ask for it.
inline SavedVariable save_if(bool wanted, const Variable& x, const char* operation) {
  return wanted ? SavedVariable(x, operation) : SavedVariable();
}

}  // namespace tessera::detail
