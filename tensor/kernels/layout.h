#pragma once

/// Layouts before a launch: kernels are faster with fewer and longer dims.

#include <initializer_list>

#include "tessera/tensor/shape.h"

namespace tessera {

/// Rewrites `shape` and the strides of operands that are walked together so that the same elements
/// are visited in fewer dims: dims of extent 1 are removed, and adjacent dims merged if the strides
/// of every operand allow it. The order of elements is kept.
void merge_dims(Shape& shape, std::initializer_list<Shape*> strides);

/// Sorts dims in descending order of the first operand's strides before merging, so that it is
/// walked in memory order. This changes the order of elements, which elementwise kernels do not
/// depend on.
void sort_and_merge_dims(Shape& shape, std::initializer_list<Shape*> strides);

}  // namespace tessera
