#pragma once

/// Differentiable helpers that derivatives are made of. For autograd's own .cc files.

#include "tessera/autograd/function.h"
#include "tessera/autograd/variable.h"

namespace tessera::detail {

/// `x` kept only where someone will ask for it.
inline SavedVariable save_if(bool wanted, const Variable& x, const char* operation) {
  return wanted ? SavedVariable(x, operation) : SavedVariable();
}

/// The same elements in another shape; a view where x is contiguous, else a copy. Twice.
Variable reshape(const Variable& x, const Shape& shape);
/// Zeros of `shape` with x in [start, start + extent of x) of `dim`: the derivative of slice.
/// Twice.
Variable place(const Variable& x, const Shape& shape, int dim, std::int64_t start);

}  // namespace tessera::detail
