#pragma once

/// The derivative of operations that choose elements along a dim. For autograd's own .cc files.

#include <cstdint>

#include "tessera/autograd/ops/order.h"
#include "tessera/autograd/variable.h"

namespace tessera::detail {

/// Whether an element can be chosen for more than one result.
enum class Chosen : std::uint8_t { kOnce, kRepeatedly };

/// `chosen` was taken from x along `dim`; its gradient goes back there. Twice.
VariableAndIndices record_choice(const char* name, const Variable& x, int dim,
                                 ValuesAndIndices chosen, Chosen times = Chosen::kOnce);

}  // namespace tessera::detail
