#pragma once

/// A binary search, for CPU and GPU.

#include <cstdint>
#include <type_traits>

#include "tessera/tensor/host_device.h"
#include "tessera/tensor/kernels/math/convert_element.h"

namespace tessera {

/// What elements are compared as: f32 for 16-bit dtypes, else their own type.
template <class T>
using Compared = std::conditional_t<sizeof(T) == 2, float, T>;

/// The number of the n elements, `step` apart, that come before x; see SearchSortedKernel.
template <class T>
TESSERA_HD std::int64_t search_line(const T* sorted, std::int64_t step, std::int64_t n,
                                    Compared<T> x, bool right) {
  std::int64_t first = 0, end = n;
  while (first < end) {
    const std::int64_t middle = first + (end - first) / 2;
    const auto element = convert_element<Compared<T>>(sorted[middle * step]);
    const bool before = right ? !(element > x) : !(element >= x);  // true if one is a NaN
    if (before) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  return first;
}

}  // namespace tessera
