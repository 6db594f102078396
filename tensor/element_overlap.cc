#include "tessera/tensor/element_overlap.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace tessera {

bool elements_overlap(const Shape& shape, const Shape& strides) {
  if (is_contiguous(shape, strides)) return false;  // the usual case, and tensors without elements
  std::array<int, kMaxDims> by_stride{};  // dims of more than one element, smallest stride first
  const auto at = [&](int i) -> int& { return by_stride[static_cast<std::size_t>(i)]; };
  int count = 0;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] == 1) continue;
    int place = count++;
    for (; place > 0 && strides[at(place - 1)] > strides[d]; --place) at(place) = at(place - 1);
    at(place) = d;
  }
  std::int64_t reach = 0;  // from the first element to the last one, of the dims so far
  for (int i = 0; i < count; ++i) {
    const int d = at(i);
    if (strides[d] <= reach) return true;
    reach += (shape[d] - 1) * strides[d];
  }
  return false;
}

}  // namespace tessera
