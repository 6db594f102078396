#pragma once

/// Settling layouts before a launch: fewer and longer dims make faster kernels.

#include <initializer_list>

#include "tessera/tensor/shape.h"

namespace tessera {

/// Rewrites `shape` and the strides of operands that walk it together so that the same elements are
/// visited in fewer dims: dims of extent 1 go, neighbours that every operand walks as one merge.
/// The order of elements stays.
void merge_dims(Shape& shape, std::initializer_list<Shape*> strides);

/// Before merging, puts dims in descending order of the first operand's strides, so that it is
/// walked as it lies in memory. The order of elements changes; for elementwise kernels that is all
/// the same.
void sort_and_merge_dims(Shape& shape, std::initializer_list<Shape*> strides);

}  // namespace tessera
