// Aligned rows of up to 16,384 elements (16 and 32 bits) are read once and kept in registers; other
// rows are read twice, with the same bits. The sum is a tree over the row's threads, unlike the
// CPU's lanes: equal to the CPU's up to rounding.

#include "tessera/tensor/kernels/cuda/reductions/rows.h"
#include "tessera/tensor/kernels/math/scalar_math.h"
#include "tessera/tensor/kernels/softmax.h"

namespace tessera {
namespace {

using cuda::ComputeOf;
using cuda::Pack;
using cuda::Row;
using cuda::RowPlace;

// Of a thread, of dy and of y.
template <class T>
constexpr int kHeldPacks = cuda::held_packs<T>(16);

struct BackwardWork {
  cuda::RowPlan plan;
  cuda::RowOperand dy;
  cuda::RowOperand y;
  cuda::RowOperand dx;
  bool log = false;
};

// The term of one element in the row's sum; elements after the row's end are 0.
template <class C>
__device__ C sum_term(C dy, C y, bool log) {
  return log ? dy : scalar::mul(dy, y);
}

template <class C>
__device__ C gradient(C dy, C y, C sum, bool log) {
  return log ? scalar::fma(-scalar::exp(y), sum, dy) : scalar::mul(y, dy - sum);
}

template <class T>
__global__ void __launch_bounds__(1024)
    softmax_backward_held_kernel(const __grid_constant__ BackwardWork work) {
  using C = ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount;
  const RowPlace place(work.plan);
  const cuda::PackedRow<T> dy(work.dy, place, work.plan), y(work.y, place, work.plan),
      dx(work.dx, place, work.plan);
  const T zero = convert_element<T>(C(0));
  cuda::Words slopes[kHeldPacks<T>], values[kHeldPacks<T>];
#pragma unroll
  for (int k = 0; k < kHeldPacks<T>; ++k) {
    slopes[k] = dy.load(k * work.plan.lanes + place.lane, zero);
    values[k] = y.load(k * work.plan.lanes + place.lane, zero);
  }
  C sum = 0;
#pragma unroll
  for (int i = 0; i < kHeldPacks<T> * kCount; ++i) {
    const int k = i / kCount, j = i % kCount;
    sum += sum_term(cuda::element<T>(slopes[k], j), cuda::element<T>(values[k], j), work.log);
  }
  sum = cuda::row_sum(work.plan, sum);
#pragma unroll
  for (int k = 0; k < kHeldPacks<T>; ++k) {
    Pack<T> out;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      out.values[j] = convert_element<T>(
          gradient(cuda::element<T>(slopes[k], j), cuda::element<T>(values[k], j), sum, work.log));
    }
    dx.store(k * work.plan.lanes + place.lane, out);
  }
}

template <class T>
__global__ void __launch_bounds__(1024)
    softmax_backward_any_kernel(const __grid_constant__ BackwardWork work) {
  using C = ComputeOf<T>;
  const RowPlace place(work.plan);
  const Row<T> dy(work.dy, place), y(work.y, place), dx(work.dx, place);
  const T zero = convert_element<T>(C(0));
  C sum = 0;
  cuda::for_batches<1>(work.plan, place, dy, zero,
                       [&](const Pack<T>(&slopes)[1], std::int64_t pack) {
                         const Pack<T> values = y.load(pack, zero);
#pragma unroll
                         for (int j = 0; j < Pack<T>::kCount; ++j)
                           sum += sum_term(convert_element<C>(slopes[0].values[j]),
                                           convert_element<C>(values.values[j]), work.log);
                       });
  sum = cuda::row_sum(work.plan, sum);
  cuda::for_batches<1>(
      work.plan, place, dy, zero, [&](const Pack<T>(&slopes)[1], std::int64_t pack) {
        Pack<T> values = y.load(pack, zero);
#pragma unroll
        for (int j = 0; j < Pack<T>::kCount; ++j)
          values.values[j] =
              convert_element<T>(gradient(convert_element<C>(slopes[0].values[j]),
                                          convert_element<C>(values.values[j]), sum, work.log));
        dx.store(pack, values);
      });
}

}  // namespace

void SoftmaxBackwardKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.dx.numel() == 0) return;
  const std::int64_t n = a.dx.shape.back();
  BackwardWork work;
  work.dy = cuda::row_operand(a.dy);
  work.y = cuda::row_operand(a.y);
  work.dx = cuda::row_operand(a.dx);
  work.log = a.log;
  cuda::with_row_type(a.dx.dtype, [&]<class T>() {
    work.plan = cuda::plan_rows_of<T>(a.dx.numel() / n, n, kHeldPacks<T>, 1024);
    const cuda::Grid grid = cuda::row_grid(work.plan);
    if constexpr (!std::is_same_v<T, double>) {
      if (cuda::takes_packed_rows(work.plan, Pack<T>::kCount, work.dy, work.y, work.dx))
        return cuda::start(kName, softmax_backward_held_kernel<T>, grid, stream, work);
    }
    cuda::start(kName, softmax_backward_any_kernel<T>, grid, stream, work);
  });
}

}  // namespace tessera
