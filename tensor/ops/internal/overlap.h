#pragma once

/// Operands that share memory with what is written. Private to this folder.

#include "tessera/tensor/tensor.h"

namespace tessera::ops {

/// True when the elements of both lie within the same bytes of one storage.
bool overlap(const Tensor& a, const Tensor& b);

/// `x`, or a copy of it, put into `copy`, where writing `out` element by element could change
/// elements of x that are not yet read. Keep `copy` until the launch: a block that went back before
/// could be taken for the next copy.
const Tensor& apart(const Tensor& x, const Tensor& out, Tensor& copy);

}  // namespace tessera::ops
