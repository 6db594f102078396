#pragma once

/// Shared by the kernels of a reduction. For .cu files; see reduce_plan.h.

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/reductions/reduce_plan.h"
#include "tessera/tensor/kernels/cuda/reductions/rows.h"
#include "tessera/tensor/kernels/math/reduce_folds.h"

namespace tessera::cuda {

/// Converts a total to a result.
struct ReduceFinish {
  ReduceOp op = ReduceOp::kSum;
  folds::ReduceNumbers numbers;
  const double* shift = nullptr;  ///< of each result, or null
  void* y = nullptr;
  DType y_dtype = DType::kF32;
};

struct ReduceWork {
  ReducePlan plan;
  const void* x = nullptr;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;         ///< the result of folding_op()
  ReduceOp combining = ReduceOp::kSum;  ///< the result of combining_op()
  void* totals = nullptr;               ///< [totals, outputs]; not used if there is one total
  ReduceFinish finish;
};

/// The 8-byte type in which blocks of C are folded.
template <class C>
using TotalOf = folds::Wide<C>;

/// Not inlined: each kernel calls it once, and it is long.
template <class Total>
__device__ __attribute__((noinline)) void finish_result(const ReduceFinish& to, std::int64_t output,
                                                        Total total) {
  const double shift = to.shift == nullptr ? 0 : to.shift[output];
  folds::with_fold<Total>(to.op, [&]<class F>() {
    store_element(to.y, to.y_dtype, output, F::finish(total, shift, to.numbers));
  });
}

/// Stores total number `which` of a result: the result itself if it is the only total.
template <class Total>
__device__ inline void put_total(const ReduceWork& work, std::int64_t output, std::int64_t which,
                                 Total total) {
  if (work.plan.totals == 1) return finish_result(work.finish, output, total);
  static_cast<Total*>(work.totals)[which * work.plan.outputs + output] = total;
}

template <class C, class F>
inline constexpr bool kIsHeavy =
    std::is_same_v<F, folds::NormPFold<C>> || std::is_same_v<F, folds::LogSumExpFold<C>>;

/// The reductions with accumulator Acc, for elements that are computed in C; without the operations
/// of ReducePlan::heavy, unless `kHeavy`.
template <class C, class Acc, bool kHeavy, class Body>
__device__ inline void with_terms_of(ReduceOp op, Body&& body) {
  folds::with_folding<C>(op, [&]<class F>() {
    if constexpr (std::is_same_v<typename F::Acc, Acc> && (kHeavy || !kIsHeavy<C, F>))
      body.template operator()<F>();
  });
}

/// The result of no elements.
template <class C, class Acc>
__device__ inline Acc nothing_of(ReduceOp combining) {
  Acc none{};
  folds::with_combining<C>(combining, [&]<class F>() { none = static_cast<Acc>(F::kNone); });
  return none;
}
/// Whether an operation on elements with compute type f32 accumulates in f64.
inline bool accumulates_in_f64(ReduceOp op) {
  bool wide = false;
  folds::with_folding<float>(op,
                             [&]<class F>() { wide = std::is_same_v<typename F::Acc, double>; });
  return wide;
}

/// Calls body.operator()<C, Acc>() with the compute type and the accumulator type for `dtype`.
template <class Body>
void with_accumulator(DType dtype, ReduceOp op, Body&& body) {
  with_compute_type(dtype, [&]<class C>() {
    if constexpr (std::is_same_v<C, float>) {
      if (accumulates_in_f64(op)) return body.template operator()<C, double>();
    }
    body.template operator()<C, C>();
  });
}

/// The first launch, of rows or columns.
void fold_rows(CudaStream stream, const ReduceWork& work);
void fold_columns(CudaStream stream, const ReduceWork& work);

}  // namespace tessera::cuda
