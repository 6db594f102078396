// One pass over the logits: each thread keeps the largest logit so far and the sum of exponentials,
// and threads are combined at the end. Sums are trees over the row's threads, unlike the CPU's
// lanes; with smoothing, the sum over classes is in f64. Equal to the CPU's results up to rounding.
//
// A target that is no class is reported (tensor/cuda/faults.h); its row is treated as ignored.

#include "tessera/tensor/kernels/cross_entropy.h"

#include "tessera/tensor/kernels/cuda/reductions/online_softmax.h"

namespace tessera {
namespace {

using cuda::ComputeOf;
using cuda::Pack;
using cuda::Row;
using cuda::RowPlace;

constexpr int kThreads = 256;  // of a block, at most

struct ForwardWork {
  cuda::RowPlan plan;
  cuda::RowOperand logits;
  cuda::RowTargets targets;
  void* loss = nullptr;
  void* log_sum_exp = nullptr;
  void* row_weight = nullptr;
  void* largest = nullptr;  // null unless the logits are a part
};

// A thread's sums for smoothing: of w[c] x[c] and of w[c].
struct WeightedSums {
  double values = 0;
  double weights = 0;
};

template <class C>
struct RowLoss {
  C loss, largest, log_sum;  // log_sum is that of the logits - largest
};

// `target_weight` is 0, and `x_target` a number, if the target is in another part.
template <class T, class C = ComputeOf<T>>
__device__ RowLoss<C> row_loss(const cuda::OnlineSum<T>& row, C x_target, C target_weight,
                               const WeightedSums& sums, const cuda::RowTargets& targets) {
  const C on_target = static_cast<C>(1 - targets.smoothing);
  const C on_each = static_cast<C>(targets.smoothing / static_cast<double>(targets.classes));
  const C log_sum = scalar::log(row.total);
  if (row.total == C(0)) return {C(0), row.largest, log_sum};  // a part without a number
  // Not log_sum_exp - x[target]: for large logits that would lose small differences.
  C loss = scalar::mul(on_target * target_weight, log_sum - (x_target - row.largest));
  if (on_each != C(0)) {
    const double whole = static_cast<double>(log_sum) + static_cast<double>(row.largest);
    const double spread = sums.weights * whole - sums.values;
    loss = scalar::fma(on_each, static_cast<C>(spread), loss);
  }
  return {loss, row.largest, log_sum};
}

// Adds the elements of a batch that lie in the row; a missing one adds 0. Without class weights
// their sum is known.
template <class T, int kCount, class C = ComputeOf<T>>
__device__ void add_weighted(WeightedSums& sums, const ForwardWork& work, const Row<T>& logits,
                             const C (&values)[kCount], std::int64_t first) {
  constexpr int kPack = Pack<T>::kCount;
  const auto* weight = static_cast<const C*>(work.targets.column_weight);
#pragma unroll
  for (int k = 0; k < kCount / kPack; ++k) {
    const std::int64_t pack = first + std::int64_t{k} * work.plan.lanes;
    const int valid = logits.valid(pack);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const auto value = static_cast<double>(j < valid ? values[k * kPack + j] : C(0));
      if (weight == nullptr) {
        sums.values += value;
      } else {
        const C loaded = weight[j < valid ? pack * kPack + j : 0];
        const double w = j < valid ? static_cast<double>(loaded) : 0.0;
        sums.values += scalar::mul(w, value);
        sums.weights += w;
      }
    }
  }
}

// The sums over the row's threads.
__device__ inline WeightedSums over_row(const WeightedSums& sums, const ForwardWork& work) {
  WeightedSums row;
  row.values = cuda::row_sum(work.plan, sums.values);
  row.weights = work.targets.weight == nullptr ? static_cast<double>(work.plan.length)
                                               : cuda::row_sum(work.plan, sums.weights);
  return row;
}

// Small blocks with few registers, so that four are resident: while one begins or ends a row, the
// others keep the memory busy. Smoothing and f64 need more registers.
template <class T, bool kSmooths>
__global__ void __launch_bounds__(kThreads, kSmooths || sizeof(T) == 8 ? 2 : 4)
    cross_entropy_kernel(const __grid_constant__ ForwardWork work) {
  using C = ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount, kBatch = sizeof(T) == 8 ? 1 : kSmooths ? 16 / kCount : 4;
  const RowPlace place(work.plan);
  const Row<T> logits(work.logits, place);
  const std::int64_t target = cuda::target_of(work.targets, place);
  const bool ignored = target < 0;
  const auto* weight = static_cast<const C*>(work.targets.weight);
  // Before the row, so that they arrive while it is read.
  C x_target = 0, target_weight = 0;
  const std::int64_t column = cuda::column_of(work.targets, place, target);
  if (place.leads() && !ignored && column >= 0) {
    x_target = convert_element<C>(logits.at(column));
    target_weight = weight == nullptr ? C(1) : weight[target];
  }
  cuda::OnlineSum<T> mine;
  WeightedSums sums;
  const T low = convert_element<T>(cuda::OnlineSum<T>::kLow);
  const auto add = [&](const cuda::Words(&packs)[kBatch], std::int64_t first) {
    C values[kBatch * kCount];
#pragma unroll
    for (int i = 0; i < kBatch * kCount; ++i)
      values[i] = cuda::element<T>(packs[i / kCount], i % kCount);
    mine.add(values);
    if constexpr (kSmooths) add_weighted<T>(sums, work, logits, values, first);
  };
  if (!ignored) cuda::for_word_batches<kBatch>(work.plan, place, logits, low, add);
  const bool is_part = work.largest != nullptr;
  const cuda::OnlineSum<T> row =
      mine.over_row(work.plan, is_part ? C(0) : std::numeric_limits<C>::quiet_NaN());
  if constexpr (kSmooths) sums = over_row(sums, work);
  if (!place.leads()) return;
  RowLoss<C> result{C(0), C(0), C(0)};
  if (!ignored) result = row_loss(row, x_target, target_weight, sums, work.targets);
  static_cast<C*>(work.loss)[place.row] = result.loss;
  if (is_part) static_cast<C*>(work.largest)[place.row] = result.largest;
  static_cast<C*>(work.log_sum_exp)[place.row] =
      is_part ? result.log_sum : result.log_sum + result.largest;
  static_cast<C*>(work.row_weight)[place.row] = target_weight;
}

}  // namespace

void CrossEntropyKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const std::int64_t rows = a.logits.shape[0], n = a.logits.shape[1];
  if (rows == 0) return;
  ForwardWork work;
  work.logits = cuda::row_operand(a.logits);
  work.targets = cuda::row_targets(stream, a.targets);
  work.loss = a.loss.data;
  work.log_sum_exp = a.log_sum_exp.data;
  work.row_weight = a.row_weight.data;
  work.largest = a.largest.data;
  cuda::with_row_type(a.logits.dtype, [&]<class T>() {
    work.plan = cuda::plan_rows_of<T>(rows, n, 16, kThreads);
    const auto kernel =
        a.targets.smoothing != 0 ? cross_entropy_kernel<T, true> : cross_entropy_kernel<T, false>;
    cuda::start(kName, kernel, cuda::row_grid(work.plan), stream, work);
  });
}

}  // namespace tessera
