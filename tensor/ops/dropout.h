#pragma once

/// Dropout with numbers found by position, so that ranks, threads and a second forward drop the
/// same elements.

#include "tessera/tensor/random.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// y = x / (1 - p) where the element stays, else 0. It stays where random::fill_uniform on an f32
/// tensor with this key and box gives at least p; so for every dtype alike. p = 0 gives x, p = 1
/// zeros. The derivative is dropout of dy with the same p, key and box: no mask is kept.
///
/// x is floating, of any strides, and is the part `box` of the global tensor. Throws
/// InvalidArgument for p outside [0, 1] and for a box that x does not fit (see
/// random::fill_uniform).
Tensor dropout(const Tensor& x, double p, random::Key key, const random::Box& box);

}  // namespace tessera
