#pragma once

/// Dropout. Its random numbers are found by position, so ranks, threads and a recomputed forward
/// drop the same elements.

#include "tessera/tensor/random.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// y = x / (1 - p) for kept elements, else 0. An element is kept if random::fill_uniform on an f32
/// tensor with this key and box gives at least p; the choice is the same for every dtype. p = 0
/// gives x, p = 1 zeros. The derivative is dropout of dy with the same p, key and box: no mask is
/// stored.
///
/// x is floating, with any strides, and is the box `box` of the global tensor. Throws
/// InvalidArgument for p outside [0, 1] and for a box that does not match x (see
/// random::fill_uniform).
Tensor dropout(const Tensor& x, double p, random::Key key, const random::Box& box);

}  // namespace tessera
