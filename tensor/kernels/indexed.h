#pragma once

/// What kernels that follow indices share.

#include "tessera/tensor/kernels/view.h"

namespace tessera {

/// Called by a kernel that met an index outside [0, extent); throws. A pointer, because the text
/// needs what kernel builds do not link. `position` counts the indices in row-major order, one that
/// is repeated by a stride of 0 once; `dim` is the one that they index.
using BadIndex = void (*)(std::int64_t index, std::int64_t position, std::int64_t extent, int dim);

/// How three operands are walked together: the one that is indexed, the indices, and the one that
/// takes or gives the elements. All have one shape, that of the indices repeated where needed; in
/// `dim` the first does not advance, but is found by the index.
struct IndexedWalk {
  Shape shape;
  Shape indexed;  ///< strides, with 0 in `dim`
  Shape index;    ///< strides; 0 where the indices are repeated
  Shape other;    ///< strides
  int dim = 0;
  std::int64_t stride = 0;  ///< of the indexed dim
  std::int64_t extent = 0;  ///< indices are inside [0, extent)
  int named_dim = 0;        ///< what the user calls `dim`, for BadIndex
};

}  // namespace tessera
