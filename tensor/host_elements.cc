#include "tessera/tensor/host_elements.h"

#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera {

HostElements::HostElements(const Tensor& tensor) {
  const std::size_t size = dtype_size(tensor.dtype());
  const auto* data = static_cast<const std::byte*>(tensor.storage().data());
  first_ = data + static_cast<std::size_t>(tensor.offset()) * size;
  if (!tensor.device().is_cuda()) return;
  const std::int64_t span = spanned_elements(tensor.shape(), tensor.strides());
  const std::size_t bytes = static_cast<std::size_t>(span) * size;
  copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (bytes > 0) {
    current_stream(tensor.device()).cuda_queue().copy_to_host(copy_.get(), first_, bytes);
  }
  first_ = copy_.get();
}

std::int64_t spanned_elements(const Shape& shape, const Shape& strides) {
  std::int64_t last = 0;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (shape[dim] == 0) return 0;
    last += (shape[dim] - 1) * strides[dim];
  }
  return last + 1;
}

}  // namespace tessera
