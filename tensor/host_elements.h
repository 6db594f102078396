#pragma once

/// A tensor's elements at an address that the host can read. Private to this folder.

#include <cstddef>
#include <memory>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// The tensor's current stream must have been synchronized. For a CPU tensor this is the tensor's
/// own memory. For a GPU tensor it is a host copy of the range that its strides span; the
/// constructor waits for the copy.
class HostElements {
 public:
  explicit HostElements(const Tensor& tensor);

  /// The first element; the others lie at the tensor's strides from it.
  const void* first() const { return first_; }

 private:
  std::unique_ptr<std::byte[]> copy_;
  const void* first_ = nullptr;
};

/// The number of elements from a view's first to its last one, gaps included; 0 for empty views.
std::int64_t spanned_elements(const Shape& shape, const Shape& strides);

}  // namespace tessera
