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
  T lanes[kLanes];
  for (T& lane : lanes) lane = -std::numeric_limits<T>::infinity();
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    }
  }
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  T largest = lanes[0];
  for (T lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

}  // namespace tessera::cpu
