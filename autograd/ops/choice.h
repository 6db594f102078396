#pragma once

/// The derivative of operations that choose elements along a dim. For autograd's own .cc files.

#include "tessera/autograd/ops/order.h"
#include "tessera/autograd/variable.h"

namespace tessera::detail {

/// `chosen` was taken from x along `dim`; its gradient goes back there. Twice.
VariableAndIndices record_choice(const char* name, const Variable& x, int dim,
                                 ValuesAndIndices chosen);

}  // namespace tessera::detail
