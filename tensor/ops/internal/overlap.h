#pragma once

/// Operands that share memory with the output. Private to this folder.

#include "tessera/tensor/tensor.h"

namespace tessera::ops {

/// True if the elements of both lie within the same bytes of one storage.
bool overlap(const Tensor& a, const Tensor& b);

/// Returns x, or a copy of it if writing `out` element by element could change elements of x that
/// are not read yet. The copy is stored in `copy`. Keep `copy` until the launch: if its block were
/// returned earlier, the next copy could reuse it.
const Tensor& apart(const Tensor& x, const Tensor& out, Tensor& copy);

}  // namespace tessera::ops
