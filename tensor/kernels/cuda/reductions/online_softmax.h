#pragma once

/// The largest element of a row and the sum of exp(x - largest), in one pass: each thread rescales
/// its sum when it finds a larger element, and threads are combined at the end. (Milakov and
/// Gimelshein, "Online normalizer calculation for softmax", 2018.) For .cu files.

#include "tessera/tensor/cuda/faults.h"
#include "tessera/tensor/kernels/cross_entropy.h"
#include "tessera/tensor/kernels/cuda/reductions/rows.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera::cuda {

/// e^x for x computed from elements of T. Of 16 bits: the hardware's 2^x, off by about 2^-22 (1 + |x|)
/// of the result, which is lost where the elements were rounded, in a fifth of the instructions.
template <class T>
__device__ inline ComputeOf<T> exp_from(ComputeOf<T> x) {
  if constexpr (sizeof(T) == 2) {
    return ::exp2f(x * 1.44269504f);
  } else {
    return scalar::exp(x);
  }
}

/// The same for a term of a sum that has a term of 1: a result below 2^-126 may be 0.
template <class T>
__device__ inline ComputeOf<T> exp_to_add(ComputeOf<T> x) {
  if constexpr (sizeof(T) == 2) {
    return exp2_flushed(x * 1.44269504f);
  } else {
    return scalar::exp(x);
  }
}

/// The larger one, in one instruction; the other one if one is NaN.
__device__ inline float larger_number(float a, float b) { return ::fmaxf(a, b); }
__device__ inline double larger_number(double a, double b) { return ::fmax(a, b); }

/// Of elements of T, in its compute type.
template <class T>
struct OnlineSum {
  using C = ComputeOf<T>;
  static constexpr C kLow = -std::numeric_limits<C>::infinity();

  C largest = kLow;
  C total = 0;

  /// Elements that are -inf add nothing. The sum is rescaled at most once; four chains of maxima
  /// and of sums, so that an operation need not wait for the one before.
  template <int kCount>
  __device__ void add(const C (&values)[kCount]) {
    constexpr int kChains = kCount < 4 ? kCount : 4;
    C most[kChains], sums[kChains] = {};
#pragma unroll
    for (int i = 0; i < kChains; ++i) most[i] = values[i];
#pragma unroll
    for (int i = kChains; i < kCount; ++i)
      most[i % kChains] = larger_number(most[i % kChains], values[i]);
#pragma unroll
    for (int i = 1; i < kChains; ++i) most[0] = larger_number(most[0], most[i]);
    if (most[0] > largest) {
      total *= scalar::exp(largest - most[0]);
      largest = most[0];
    }
    // If all elements so far are -inf, their differences would be NaN.
    const C from = largest == kLow ? C(0) : largest;
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i % kChains] += exp_to_add<T>(values[i] - from);
#pragma unroll
    for (int i = 1; i < kChains; ++i) sums[0] += sums[i];
    total += sums[0];
  }

  /// The result for the full row. As in plain softmax, a row that has +inf or NaN gives NaN; one that
  /// has only -inf gives `of_low`.
  __device__ OnlineSum over_row(const RowPlan& plan,
                                C of_low = std::numeric_limits<C>::quiet_NaN()) const {
    const C most = row_fold(plan, largest, kLow, Larger());
    const C mine = largest == kLow ? total : total * scalar::exp(largest - most);
    const C sum = row_sum(plan, mine);
    OnlineSum whole;
    whole.largest = most;
    whole.total = most == kLow && sum == C(0) ? of_low : sum;
    return whole;
  }
};

// The targets of a cross entropy on a GPU. For .cu files.

inline void throw_target_fault(FaultCallback callback, const std::int64_t* numbers) {
  reinterpret_cast<BadTarget>(callback)(numbers[0], numbers[1], numbers[2]);
}

struct RowTargets {
  const void* targets = nullptr;
  const void* weight = nullptr;         ///< of all classes, in the compute type, or null
  const void* column_weight = nullptr;  ///< of the columns
  std::int64_t first = 0;
  std::int64_t classes = 0;
  std::int64_t stride = 0;
  std::int64_t ignore_index = -100;
  double smoothing = 0;
  bool narrow = false;  ///< i32, else i64
  FaultReporter faults;
};

inline RowTargets row_targets(CudaStream stream, const CrossEntropyTargets& t) {
  const std::size_t before = static_cast<std::size_t>(t.first) * dtype_size(t.weight.dtype);
  return {.targets = t.targets.data,
          .weight = t.weight.data,
          .column_weight =
              t.weight.defined() ? static_cast<const char*>(t.weight.data) + before : nullptr,
          .first = t.first,
          .classes = t.classes,
          .stride = t.targets.strides[0],
          .ignore_index = t.ignore_index,
          .smoothing = t.smoothing,
          .narrow = t.targets.dtype == DType::kI32,
          .faults = {.slot = fault_slot(stream),
                     .handler = throw_target_fault,
                     .callback = reinterpret_cast<FaultCallback>(t.bad_target)}};
}

/// The row's class, or -1: the target is ignored, is no class, which is reported, or the row does
/// not exist.
__device__ inline std::int64_t target_of(const RowTargets& t, const RowPlace& place) {
  if (!place.exists) return -1;
  const std::int64_t at = place.row * t.stride;
  const std::int64_t target = t.narrow ? static_cast<const std::int32_t*>(t.targets)[at]
                                       : static_cast<const std::int64_t*>(t.targets)[at];
  if (target == t.ignore_index) return -1;
  if (target >= 0 && target < t.classes) return target;
  if (place.lane == 0) report_fault(t.faults, place.row, target, t.classes);
  return -1;
}

/// The column of the logits that has the class, or -1: it is in another part.
__device__ inline std::int64_t column_of(const RowTargets& t, const RowPlace& place,
                                         std::int64_t target) {
  const std::int64_t column = target - t.first;
  return column >= 0 && column < place.length ? column : -1;
}

}  // namespace tessera::cuda
