#pragma once

/// Converts tensors to the views that kernels take. Pointers are resolved here, at launch.

#include "tessera/tensor/kernels/view.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// Throws StateError if the storage is not ready.
ConstView read(const Tensor& tensor);
/// The same for a result that an operation has just created; increments its version.
View write(const Tensor& tensor);
/// For a tensor that existed before: the version family also remembers `by`, the operation under
/// the name that the user calls, a string literal. Errors about overwritten tensors name it.
View overwrite(const Tensor& tensor, const char* by);
/// For the owner of a storage that is filling: no version is incremented.
View fill_view(const Tensor& tensor);

}  // namespace tessera
