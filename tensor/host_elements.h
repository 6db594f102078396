#pragma once

/// A tensor's elements where the host can read them. Private to this folder.

#include <cstddef>
#include <memory>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// For a tensor whose current stream was synchronized: its own memory on the CPU; of a tensor on a
/// GPU a copy of the stretch that its strides span, which the host waits for.
class HostElements {
 public:
  explicit HostElements(const Tensor& tensor);

  /// The first element; others lie at the tensor's strides from it.
  const void* first() const { return first_; }

 private:
  std::unique_ptr<std::byte[]> copy_;
  const void* first_ = nullptr;
};

/// Elements from the first one of a view to behind its last one, gaps included; 0 for empty views.
std::int64_t spanned_elements(const Shape& shape, const Shape& strides);

}  // namespace tessera
