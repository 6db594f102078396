#pragma once

/// The largest element of a row and the sum of exp(x - largest), in one pass: each thread moves its
/// sum along when it meets a larger element, and threads are put together at the end. (Milakov and
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
    // Where all were -inf so far, their differences would be NaN.
    const C from = largest == kLow ? C(0) : largest;
#pragma unroll
    for (int i = 0; i < kCount; ++i) total += scalar::exp(values[i] - from);
  }

  /// Of the whole row. As with plain softmax, a row of -inf alone gives NaN, and so does one with
  /// +inf or NaN in it.
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
