#pragma once

/// Elements of one tensor that share memory.

#include "tessera/tensor/shape.h"

namespace tessera {

/// True if two elements may have one address: of an expanded dim, or of unfold's windows where the
/// step is smaller than the window. False for contiguous tensors and for all of their slices,
/// transposes and diagonals. Each dim's stride must exceed the reach of all dims of smaller strides;
/// other strides count as overlapping, even if by chance no two elements meet.
bool elements_overlap(const Shape& shape, const Shape& strides);

}  // namespace tessera
