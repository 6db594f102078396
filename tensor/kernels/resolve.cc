#include "tessera/tensor/kernels/resolve.h"

#include <cstddef>

namespace tessera {
namespace {

template <class Result>
Result view_of(const Tensor& tensor, void* base) {
  const auto skipped = tensor.offset() * static_cast<std::int64_t>(dtype_size(tensor.dtype()));
  return {.data = static_cast<std::byte*>(base) + skipped,
          .dtype = tensor.dtype(),
          .shape = tensor.shape(),
          .strides = tensor.strides(),
          .storage = tensor.storage().id(),
          .offset = tensor.offset()};
}

}  // namespace

ConstView read(const Tensor& tensor) { return view_of<ConstView>(tensor, tensor.storage().data()); }

View write(const Tensor& tensor) {
  const View view = view_of<View>(tensor, tensor.storage().data());
  tensor.bump_version();
  return view;
}

View overwrite(const Tensor& tensor, const char* by) {
  const View view = view_of<View>(tensor, tensor.storage().data());
  tensor.bump_version(by);
  return view;
}

View fill_view(const Tensor& tensor) {
  return view_of<View>(tensor, tensor.storage().filling_data());
}

}  // namespace tessera
