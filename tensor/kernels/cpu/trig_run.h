#pragma once

/// sin and cos of many numbers.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/math/scalar_trig.h"

namespace tessera::cpu {

namespace detail {

/// small(x[i]) where no angle is large, so that the loop has no branches, else any(x[i]). y may be x.
template <class Small, class Any>
void trig_run(std::int64_t n, const float* x, float* y, const Small& small, const Any& any) {
  constexpr std::int64_t kStep = 512;
  for (std::int64_t begin = 0; begin < n; begin += kStep) {
    const std::int64_t end = std::min(n, begin + kStep);
    std::int32_t large = 0;  // also NaN
    for (std::int64_t i = begin; i < end; ++i)
      large |= std::abs(x[i]) < scalar::detail::kLargeAngle ? 0 : 1;
    if (large == 0) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) y[i] = small(x[i]);
    } else {
      for (std::int64_t i = begin; i < end; ++i) y[i] = any(x[i]);
    }
  }
}

}  // namespace detail

inline void run(std::int64_t n, functors::Sin any, const float* x, float* y) {
  detail::trig_run(
      n, x, y, [](float a) { return scalar::sin_small(a); }, any);
}
inline void run(std::int64_t n, functors::Cos any, const float* x, float* y) {
  detail::trig_run(
      n, x, y, [](float a) { return scalar::cos_small(a); }, any);
}

}  // namespace tessera::cpu
