#pragma once

/// From tensors to the views kernels take: here pointers are resolved, at launch.

#include "tessera/tensor/kernels/view.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// Throws StateError when the storage is not ready.
ConstView read(const Tensor& tensor);
/// The same for a result that an operation just made; counts its version up.
View write(const Tensor& tensor);
/// For a tensor that was there before: the version family also remembers `by`, the operation as the
/// user calls it, a literal. Errors about overwritten tensors name it.
View overwrite(const Tensor& tensor, const char* by);
/// For the owner of a storage that is filling: no version moves.
View fill_view(const Tensor& tensor);

}  // namespace tessera
