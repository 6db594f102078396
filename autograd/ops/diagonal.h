#pragma once

/// The differentiable counterparts of tensor/ops/diagonal.h; diagonal() is in view.h. All twice.

#include <cstdint>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/diagonal.h"

namespace tessera {

Variable diag(const Variable& x, std::int64_t diagonal = 0);
Variable diag_embed(const Variable& x, std::int64_t offset = 0, int dim0 = -2, int dim1 = -1);
Variable trace(const Variable& x);

}  // namespace tessera
