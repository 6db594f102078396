#pragma once

/// Exponentials of many numbers: where most of the time of softmax, attention and cross entropy goes.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tessera/tensor/kernels/cpu/lanes.h"
#include "tessera/tensor/kernels/cpu/side_by_side.h"
#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera::cpu {

/// y[i] = exp(x[i] - shift), i < n. y may be x.
template <class C>
void exp_run(std::int64_t n, const C* x, C shift, C* y) {
  if constexpr (std::is_same_v<C, float>) {
    const auto shifted = [shift]<class T>(const T& of) {
      return scalar::detail::exp_in_f32<T>(of - shift);
    };
    return run_side_by_side(n, shifted, y, x);
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = scalar::exp(x[i] - shift);
}

/// The sum of exp(x[i] - shift), in the order of row_sum() of rows.h.
template <class C>
double sum_of_exps(std::int64_t n, const C* x, C shift) {
  constexpr std::int64_t kBlock = ReduceKernel::kBlock;
  C exps[kBlock];
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, n - begin);
    exp_run(count, x + begin, shift, exps);
    total += lane_sum<C>(count, [&](std::int64_t i) { return exps[i]; });
  }
  return total;
}

}  // namespace tessera::cpu
