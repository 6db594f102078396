#pragma once

/// Sums whose order of additions is fixed and suits vector units: element i goes to lane i %
/// kLanes, lanes are folded in pairs at the end.

#include <array>
#include <cstdint>

#include "tessera/tensor/kernels/reduce.h"

namespace tessera::cpu {

inline constexpr int kLanes = ReduceKernel::kLanes;

/// The sum of term(0) ... term(n - 1).
template <class Acc, class Term>
Acc lane_sum(std::int64_t n, const Term& term) {
  Acc lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] += term(i + lane);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

}  // namespace tessera::cpu
