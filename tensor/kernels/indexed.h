#pragma once

/// Shared by kernels that use indices.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// Called by a kernel that finds an index outside [0, extent); throws. A function pointer, because
/// kernel builds do not link the code that formats the message. `position` counts the indices in
/// row-major order; an index that a stride of 0 repeats counts once. `dim` is the indexed dim.
using BadIndex = void (*)(std::int64_t index, std::int64_t position, std::int64_t extent, int dim);

/// How three operands are walked together: the indexed operand, the indices, and the operand that
/// receives or supplies the elements. All have one shape; indices are repeated where needed. In
/// `dim` the indexed operand does not advance: the index gives the position.
struct IndexedWalk {
  Shape shape;
  Shape indexed;  ///< strides, with 0 in `dim`
  Shape index;    ///< strides; 0 where the indices are repeated
  Shape other;    ///< strides
  int dim = 0;
  std::int64_t stride = 0;  ///< of the indexed dim
  std::int64_t extent = 0;  ///< indices are inside [0, extent)
  int named_dim = 0;        ///< the user's number of `dim`, for BadIndex
};

}  // namespace tessera
