#pragma once

/// Steps over one row that softmax and cross entropy share.

#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/cpu/lanes.h"
#include "tessera/tensor/kernels/scalar_math.h"

namespace tessera::cpu {

/// The largest element; -inf for none. NaN is passed over: the exponentials bring it back.
template <class T>
T row_max(const T* x, std::int64_t n) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

}  // namespace tessera::cpu
