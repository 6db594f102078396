// The order is that of kernels/reduce.h: the bits are the CPU's, except if a function of the maths
// library (pow, and exp and log in f64) differs in the last bit.

#include "tessera/tensor/kernels/reduce.h"

#include "tessera/tensor/kernels/cuda/reductions/reduce_work.h"

namespace tessera {
namespace {

constexpr int kGroup = static_cast<int>(ReduceKernel::kGroup);

struct FoldWork {
  const void* from = nullptr;  // [count, outputs]
  void* to = nullptr;          // [left, outputs]
  std::int64_t count = 0;
  std::int64_t outputs = 0;
  ReduceOp combining = ReduceOp::kSum;
  cuda::ReduceFinish finish;
};

// Up to `kGroup` totals of one result, in order.
template <class F, class Total>
__device__ Total fold_group(const FoldWork& work, std::int64_t first, std::int64_t output) {
  const auto* from = static_cast<const Total*>(work.from);
  const std::int64_t last = first + kGroup < work.count ? first + kGroup : work.count;
  Total total = static_cast<Total>(F::kNone);
#pragma unroll 8
  for (std::int64_t i = first; i < last; ++i)
    total = F::fold(total, from[i * work.outputs + output]);
  return total;
}

// Threads [blockDim.x results, blockDim.y groups]: folds groups, then their results.
template <class Total>
__global__ void __launch_bounds__(256) fold_totals_kernel(const __grid_constant__ FoldWork work) {
  __shared__ Total shared[256];
  Total* const groups = shared;
  const std::int64_t output = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t first =
      (std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y) * std::int64_t{kGroup};
  const bool exists = output < work.outputs;
  Total total{};
  folds::with_combining<Total>(work.combining, [&]<class F>() {
    total = exists ? fold_group<F, Total>(work, first, output) : static_cast<Total>(F::kNone);
    if (blockDim.y == 1) return;
    groups[threadIdx.y * blockDim.x + threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y != 0) return;
    total = static_cast<Total>(F::kNone);
    for (unsigned g = 0; g < blockDim.y; ++g)
      total = F::fold(total, groups[g * blockDim.x + threadIdx.x]);
  });
  if (!exists || threadIdx.y != 0) return;
  if (gridDim.y == 1) return cuda::finish_result(work.finish, output, total);
  static_cast<Total*>(work.to)[blockIdx.y * work.outputs + output] = total;
}

// The totals from the first launch, and then those of their groups.
template <class Total>
void fold_totals(CudaStream stream, const cuda::ReduceWork& first) {
  FoldWork work;
  work.from = first.totals;
  work.count = first.plan.totals;
  work.outputs = first.plan.outputs;
  work.to = static_cast<Total*>(first.totals) + work.count * work.outputs;
  work.combining = first.combining;
  work.finish = first.finish;
  for (;;) {
    const cuda::FoldPlan plan = cuda::plan_fold(work.count);
    const std::int64_t sides = (work.outputs + plan.side - 1) / plan.side;
    cuda::start(ReduceKernel::kName, fold_totals_kernel<Total>,
                {.blocks = dim3(static_cast<unsigned>(sides), static_cast<unsigned>(plan.left)),
                 .threads = dim3(plan.side, plan.groups)},
                stream, work);
    if (plan.left == 1) return;
    void* const next = const_cast<void*>(work.from);
    work.from = work.to;
    work.to = next;
    work.count = plan.left;
  }
}

}  // namespace

void ReduceKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  cuda::ReduceWork work;
  work.plan = cuda::plan_reduce(a);
  if (work.plan.outputs == 0) return;
  work.x = a.x.data;
  work.dtype = a.x.dtype;
  work.op = folds::folding_op(a.op);
  work.combining = folds::combining_op(a.op);
  work.totals = scratch.data;
  work.finish.op = a.op;
  work.finish.numbers = {.count = static_cast<double>(work.plan.count), .parameter = a.parameter};
  if (a.shift.defined()) work.finish.shift = a.shift.as<double>();
  work.finish.y = a.y.data;
  work.finish.y_dtype = a.y.dtype;
  work.plan.columns ? cuda::fold_columns(stream, work) : cuda::fold_rows(stream, work);
  if (work.plan.totals == 1) return;
  if (is_floating(a.x.dtype)) return fold_totals<double>(stream, work);
  fold_totals<std::int64_t>(stream, work);
}

}  // namespace tessera
