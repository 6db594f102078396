#pragma once

/// The largest element of a row and the sum of exp(x - largest), in one pass: each thread rescales
/// its sum when it finds a larger element, and threads are combined at the end. (Milakov and
/// Gimelshein, "Online normalizer calculation for softmax", 2018.) For .cu files.

#include "tessera/tensor/kernels/cuda/reductions/rows.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera::cuda {

template <class C>
struct OnlineSum {
  static constexpr C kLow = -std::numeric_limits<C>::infinity();

  C largest = kLow;
  C total = 0;

  /// Elements that are -inf add nothing.
  template <int kCount>
  __device__ void add(const C (&values)[kCount]) {
    C most = values[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) most = Larger()(most, values[i]);
    if (most > largest) {
      total *= scalar::exp(largest - most);
      largest = most;
    }
    // If all elements so far are -inf, their differences would be NaN.
    const C from = largest == kLow ? C(0) : largest;
#pragma unroll
    for (int i = 0; i < kCount; ++i) total += scalar::exp(values[i] - from);
  }

  /// The result for the full row. As in plain softmax, a row that has only -inf, or has +inf or
  /// NaN, gives NaN.
  __device__ OnlineSum over_row(const RowPlan& plan) const {
    const C most = row_fold(plan, largest, kLow, Larger());
    const C mine = largest == kLow ? total : total * scalar::exp(largest - most);
    const C sum = row_sum(plan, mine);
    OnlineSum whole;
    whole.largest = most;
    whole.total = most == kLow ? std::numeric_limits<C>::quiet_NaN() : sum;
    return whole;
  }
};

}  // namespace tessera::cuda
