// Aligned rows of up to 32,768 elements (16 and 32 bits) are read once and kept in registers; other
// rows are read two or three times, with the same bits. Longer rows are read twice. Sums are trees
// over the row's threads, unlike the CPU's lanes, and the quotient is a product with the inverse:
// equal to the CPU's up to rounding.

#include "tessera/tensor/kernels/softmax.h"

#include "tessera/tensor/kernels/cuda/reductions/online_softmax.h"

namespace tessera {
namespace {

using cuda::ComputeOf;
using cuda::Pack;
using cuda::Row;
using cuda::RowPlace;

constexpr int kHeldElements = 32;  // per thread

struct SoftmaxWork {
  cuda::RowPlan plan;
  cuda::RowOperand x;
  cuda::RowOperand y;
  bool log = false;
};

template <class T>
__device__ T lowest() {
  return convert_element<T>(cuda::OnlineSum<ComputeOf<T>>::kLow);
}

// y = exp(x - largest) * factor, or x - largest - factor.
template <class C>
struct Result {
  C largest, factor;
  bool log;

  __device__ C of(C x, C exponential) const {
    return log ? (x - largest) - factor : scalar::mul(exponential, factor);
  }
};

template <class C>
__device__ Result<C> result_of(C largest, C total, bool log) {
  return {largest, log ? scalar::log(total) : C(1) / total, log};
}

template <class T>
__global__ void __launch_bounds__(1024)
    softmax_held_kernel(const __grid_constant__ SoftmaxWork work) {
  using C = ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount, kPacks = cuda::held_packs<T>(kHeldElements);
  const RowPlace place(work.plan);
  const cuda::PackedRow<T> x(work.x, place, work.plan), y(work.y, place, work.plan);
  cuda::Words packs[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) packs[k] = x.load(k * work.plan.lanes + place.lane, lowest<T>());
  C values[kPacks * kCount];
  C largest = cuda::OnlineSum<C>::kLow;
#pragma unroll
  for (int i = 0; i < kPacks * kCount; ++i) {
    values[i] = cuda::element<T>(packs[i / kCount], i % kCount);
    largest = cuda::Larger()(largest, values[i]);
  }
  largest = cuda::row_fold(work.plan, largest, cuda::OnlineSum<C>::kLow, cuda::Larger());
  C total = 0;
#pragma unroll
  for (int i = 0; i < kPacks * kCount; ++i) {
    const C exponential = scalar::exp(values[i] - largest);
    total += exponential;
    if (!work.log) values[i] = exponential;
  }
  total = cuda::row_sum(work.plan, total);
  const Result<C> result = result_of(largest, total, work.log);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    Pack<T> out;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const C value = values[k * kCount + j];
      out.values[j] = convert_element<T>(result.of(value, value));
    }
    y.store(k * work.plan.lanes + place.lane, out);
  }
}

// 16 elements; fewer for f64, whose exponential takes many registers.
template <class T>
constexpr int kBatch = sizeof(T) == 8 ? 1 : 16 / Pack<T>::kCount;

// Calls body(values) for the elements of one thread, batch by batch, with -inf after the row's end.
template <class T, class Body>
__device__ void for_values(const cuda::RowPlan& plan, const RowPlace& place, const Row<T>& x,
                           Body body) {
  using C = ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount;
  cuda::for_batches<kBatch<T>>(
      plan, place, x, lowest<T>(), [&](const Pack<T>(&packs)[kBatch<T>], std::int64_t) {
        C values[kBatch<T> * kCount];
#pragma unroll
        for (int i = 0; i < kBatch<T> * kCount; ++i)
          values[i] = convert_element<C>(packs[i / kCount].values[i % kCount]);
        body(values);
      });
}

// The largest element and the sum, with the bits of softmax_held_kernel, but reading the row twice.
template <class T>
__device__ cuda::OnlineSum<ComputeOf<T>> held_sum(const cuda::RowPlan& plan, const RowPlace& place,
                                                  const Row<T>& x) {
  using C = ComputeOf<T>;
  cuda::OnlineSum<C> row;
  for_values(plan, place, x, [&](const auto& values) {
#pragma unroll
    for (int i = 0; i < kBatch<T> * Pack<T>::kCount; ++i)
      row.largest = cuda::Larger()(row.largest, values[i]);
  });
  row.largest = cuda::row_fold(plan, row.largest, cuda::OnlineSum<C>::kLow, cuda::Larger());
  for_values(plan, place, x, [&](const auto& values) {
#pragma unroll
    for (int i = 0; i < kBatch<T> * Pack<T>::kCount; ++i)
      row.total += scalar::exp(values[i] - row.largest);
  });
  row.total = cuda::row_sum(plan, row.total);
  return row;
}

template <class T>
__device__ cuda::OnlineSum<ComputeOf<T>> online_sum(const cuda::RowPlan& plan,
                                                    const RowPlace& place, const Row<T>& x) {
  cuda::OnlineSum<ComputeOf<T>> mine;
  for_values(plan, place, x, [&](const auto& values) { mine.add(values); });
  return mine.over_row(plan);
}

template <class T>
__global__ void __launch_bounds__(1024)
    softmax_any_kernel(const __grid_constant__ SoftmaxWork work) {
  using C = ComputeOf<T>;
  const RowPlace place(work.plan);
  const Row<T> x(work.x, place), y(work.y, place);
  const cuda::OnlineSum<C> row =
      work.plan.held ? held_sum(work.plan, place, x) : online_sum(work.plan, place, x);
  const Result<C> result = result_of(row.largest, row.total, work.log);
  cuda::for_batches<1>(
      work.plan, place, x, lowest<T>(), [&](const Pack<T>(&packs)[1], std::int64_t first) {
        Pack<T> out;
#pragma unroll
        for (int j = 0; j < Pack<T>::kCount; ++j) {
          const C value = convert_element<C>(packs[0].values[j]);
          const C exponential = work.log ? value : scalar::exp(value - row.largest);
          out.values[j] = convert_element<T>(result.of(value, exponential));
        }
        y.store(first, out);
      });
}

}  // namespace

void SoftmaxKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.x.numel() == 0) return;
  const std::int64_t n = a.x.shape.back();
  SoftmaxWork work;
  work.x = cuda::row_operand(a.x);
  work.y = cuda::row_operand(a.y);
  work.log = a.log;
  cuda::with_row_type(a.x.dtype, [&]<class T>() {
    constexpr int kPacks = cuda::held_packs<T>(kHeldElements);
    work.plan = cuda::plan_rows_of<T>(a.x.numel() / n, n, kPacks, 1024);
    const cuda::Grid grid = cuda::row_grid(work.plan);
    if constexpr (!std::is_same_v<T, double>) {
      if (cuda::takes_packed_rows(work.plan, Pack<T>::kCount, work.x, work.y))
        return cuda::start(kName, softmax_held_kernel<T>, grid, stream, work);
    }
    cuda::start(kName, softmax_any_kernel<T>, grid, stream, work);
  });
}

}  // namespace tessera
