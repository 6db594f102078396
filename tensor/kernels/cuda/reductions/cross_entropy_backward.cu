// Element by element, with the sums of the forward: the CPU's bits, except that smoothing sums
// class weights in a tree over the row's threads, and that elements of 16 bits other than the
// target's may be rounded to a neighbour (exp_from). dlogits may be the logits: the thread that reads
// an element writes it.

#include "tessera/tensor/kernels/cuda/reductions/online_softmax.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

using cuda::ComputeOf;
using cuda::Pack;
using cuda::Row;
using cuda::RowPlace;

constexpr int kThreads = 256;  // of a block, at most

struct BackwardWork {
  cuda::RowPlan plan;
  cuda::RowOperand logits;
  cuda::RowOperand dlogits;
  cuda::RowTargets targets;
  const void* dloss = nullptr;
  std::int64_t dloss_stride = 0;
  const void* log_sum_exp = nullptr;
};

// The derivative of one row, as the CPU's backward_row computes it.
template <class C>
struct RowGradient {
  C log_sum_exp, all, each, on_hit, smoothed;
  std::int64_t column;  // the target's, or -1

  __device__ RowGradient(const BackwardWork& work, const RowPlace& place, std::int64_t t, C total)
      : column(cuda::column_of(work.targets, place, t)) {
    const auto* weight = static_cast<const C*>(work.targets.weight);
    const C dloss = static_cast<const C*>(work.dloss)[place.row * work.dloss_stride];
    const C on_target = static_cast<C>(1 - work.targets.smoothing);
    C on_each = 0;  // the division in f64 takes as long as many elements
    if (work.targets.smoothing != 0)
      on_each = static_cast<C>(work.targets.smoothing / static_cast<double>(work.targets.classes));
    const C hit = on_target * (weight == nullptr ? C(1) : weight[t]);
    log_sum_exp = static_cast<const C*>(work.log_sum_exp)[place.row];
    all = scalar::fma(on_each, total, hit) * dloss;
    each = on_each * dloss;
    on_hit = hit * dloss;
    smoothed = each * total;
  }
  // Of a class other than the target, and of the target, without the part of smoothing that does
  // not depend on x.
  template <class T>
  __device__ C of_other(C x) const {
    return cuda::exp_from<T>(x - log_sum_exp) * all;
  }
  __device__ C of_target(C x) const {
    const C p = scalar::exp(x - log_sum_exp);
    // Not p - 1 after the product: the product would then already be rounded.
    return (p - C(1)) * on_hit + p * smoothed;
  }
};

// The sum of all class weights; without weights their number.
template <class C>
__device__ C total_weight(const BackwardWork& work, const RowPlace& place) {
  const auto* weight = static_cast<const C*>(work.targets.weight);
  const std::int64_t classes = work.targets.classes;
  if (weight == nullptr || work.targets.smoothing == 0) return static_cast<C>(classes);
  double mine = 0;
  for (std::int64_t c = place.lane; place.exists && c < classes; c += work.plan.lanes)
    mine += static_cast<double>(weight[c]);
  return static_cast<C>(cuda::row_sum(work.plan, mine));
}

// The derivatives of one pack.
template <class T, bool kSmooths, class C = ComputeOf<T>>
__device__ Pack<T> gradient_of(const BackwardWork& work, const RowGradient<C>& gradient,
                               const cuda::Words& x, std::int64_t pack, int valid) {
  constexpr int kCount = Pack<T>::kCount;
  C d[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) d[j] = gradient.template of_other<T>(cuda::element<T>(x, j));
  if (pack == gradient.column / kCount) {  // of -1 too, which is no element of the first pack
    const int hit = static_cast<int>(gradient.column % kCount);
    C x_target = 0;
#pragma unroll
    for (int j = 0; j < kCount; ++j) x_target = j == hit ? cuda::element<T>(x, j) : x_target;
    const C d_target = gradient.of_target(x_target);
#pragma unroll
    for (int j = 0; j < kCount; ++j) d[j] = j == hit ? d_target : d[j];
  }
  if constexpr (kSmooths) {
    const auto* weight = static_cast<const C*>(work.targets.column_weight);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const C w = weight == nullptr ? C(1) : weight[j < valid ? pack * kCount + j : 0];
      d[j] -= scalar::mul(gradient.each, w);
    }
  }
  Pack<T> out;
#pragma unroll
  for (int j = 0; j < kCount; ++j) out.values[j] = convert_element<T>(d[j]);
  return out;
}

// Small blocks with few registers, so that four are resident: while one begins or ends a row, the
// others keep the memory busy. f64 needs more registers.
template <class T, bool kSmooths>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 8 ? 2 : 4)
    cross_entropy_backward_kernel(const __grid_constant__ BackwardWork work) {
  using C = ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount, kBatch = sizeof(T) == 8 ? 2 : 4;
  const RowPlace place(work.plan);
  const std::int64_t target = cuda::target_of(work.targets, place);
  const C total = total_weight<C>(work, place);
  const Row<T> logits(work.logits, place), dlogits(work.dlogits, place);
  const T zero = convert_element<T>(C(0));
  if (target < 0) {
    Pack<T> zeros;
#pragma unroll
    for (int j = 0; j < kCount; ++j) zeros.values[j] = zero;
    for (std::int64_t p = place.lane; p < work.plan.packs; p += work.plan.lanes)
      dlogits.store(p, zeros);
    return;
  }
  const RowGradient<C> gradient(work, place, target, total);
  cuda::for_word_batches<kBatch>(
      work.plan, place, logits, zero, [&](const cuda::Words(&packs)[kBatch], std::int64_t first) {
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          const std::int64_t pack = first + std::int64_t{k} * work.plan.lanes;
          const int valid = dlogits.valid(pack);
          if (valid > 0)
            dlogits.store(pack, gradient_of<T, kSmooths>(work, gradient, packs[k], pack, valid));
        }
      });
}

}  // namespace

void CrossEntropyBackwardKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const std::int64_t rows = a.logits.shape[0], n = a.logits.shape[1];
  if (rows == 0) return;
  BackwardWork work;
  work.logits = cuda::row_operand(a.logits);
  work.dlogits = cuda::row_operand(a.dlogits);
  work.targets = cuda::row_targets(stream, a.targets);
  work.dloss = a.dloss.data;
  work.dloss_stride = a.dloss.strides[0];
  work.log_sum_exp = a.log_sum_exp.data;
  cuda::with_row_type(a.logits.dtype, [&]<class T>() {
    work.plan = cuda::plan_rows_of<T>(rows, n, 8, kThreads);
    const auto kernel = a.targets.smoothing != 0 ? cross_entropy_backward_kernel<T, true>
                                                 : cross_entropy_backward_kernel<T, false>;
    cuda::start(kName, kernel, cuda::row_grid(work.plan), stream, work);
  });
}

}  // namespace tessera
