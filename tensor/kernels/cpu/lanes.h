#pragma once

/// Folds with a fixed order that suits vector units: element i goes to lane i % kLanes; at the end
/// lanes are folded pairwise.

#include <algorithm>
#include <array>
#include <cstdint>

#include "tessera/tensor/kernels/reduce.h"

namespace tessera::cpu {

inline constexpr int kLanes = ReduceKernel::kLanes;

/// Folds lanes pairwise.
template <class Acc, class Fold>
Acc fold_lanes(Acc (&lanes)[kLanes], const Fold& fold) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] = fold(lanes[lane], lanes[lane + width]);
  }
  return lanes[0];
}

/// fold(... fold(term(0), term(1)) ...) over n terms; `none` for no terms.
template <class Acc, class Term, class Fold>
Acc lane_fold(std::int64_t n, Acc none, const Term& term, const Fold& fold) {
  Acc lanes[kLanes];
  std::fill_n(lanes, kLanes, none);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
// If the loop over lanes were unrolled early, the compiler would not vectorize it.
#pragma GCC unroll 1
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = fold(lanes[lane], term(i + lane));
  }
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] = fold(lanes[lane], term(i + lane));
  return fold_lanes(lanes, fold);
}

/// The sum of term(0) ... term(n - 1).
template <class Acc, class Term>
Acc lane_sum(std::int64_t n, const Term& term) {
  return lane_fold<Acc>(n, Acc(0), term, [](Acc a, Acc b) { return a + b; });
}

/// Two sums in one pass over the elements, each as lane_sum() of its terms: terms(i) is an array of two.
template <class Acc, class Terms>
std::array<Acc, 2> lane_sums(std::int64_t n, const Terms& terms) {
  Acc first[kLanes] = {}, second[kLanes] = {};
  const auto add = [&](std::int64_t i, int lane) {
    const std::array<Acc, 2> both = terms(i + lane);
    first[lane] += both[0];
    second[lane] += both[1];
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 1
    for (int lane = 0; lane < kLanes; ++lane) add(i, lane);
  }
  for (int lane = 0; i + lane < n; ++lane) add(i, lane);
  const auto sum = [](Acc a, Acc b) { return a + b; };
  return {fold_lanes(first, sum), fold_lanes(second, sum)};
}

}  // namespace tessera::cpu
