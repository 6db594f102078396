// Aligned rows of up to 16,384 elements of 16 bits, or 8,192 of 32, are read once and kept in
// registers; other rows are read again for each sum, with the same bits. Sums are trees over the
// row's threads, unlike the CPU's lanes: equal to the CPU's up to rounding. With a residual, the
// stored (rounded) sum is normalised: the bits of an addition followed by a norm.

#include "tessera/tensor/kernels/row_norm.h"

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/kernels/cuda/reductions/norm_rows.h"

namespace tessera {
namespace {

using cuda::ComputeOf;
using cuda::Pack;
using cuda::Row;
using cuda::RowPlace;

// Of a thread.
template <class T>
constexpr int kHeldPacks = cuda::held_packs<T>(sizeof(T) == 2 ? 32 : 16);
constexpr int kMostLanes = 512;

struct NormWork {
  cuda::RowPlan plan;
  cuda::NormGeometry geometry;
  cuda::RowOperand x;
  cuda::RowOperand residual;  // data is null if there is none
  cuda::RowOperand sum;
  cuda::RowOperand y;
  cuda::Channels weight;
  cuda::Channels bias;
  void* mean = nullptr;
  void* rstd = nullptr;
  bool centered = true;
  double eps = 0;
};

template <class C>
struct Statistics {
  C mean, rstd;
};

// Statistics from sums over a row; `sum(term)` returns the sum of term(x). First a guess of the
// mean, then the differences from it: accurate for large means. The variance is corrected for the
// rounding error of the mean.
template <class C, class Sum>
__device__ Statistics<C> statistics(const NormWork& work, const Sum& sum) {
  const double inverse = work.geometry.inverse_length;
  double exact = 0;
  if (work.centered) {
    const auto guess = static_cast<C>(static_cast<double>(sum([](C x) { return x; })) * inverse);
    exact = static_cast<double>(guess) +
            static_cast<double>(sum([=](C x) { return x - guess; })) * inverse;
  }
  const C mean = static_cast<C>(exact);
  const double squares = static_cast<double>(sum([=](C x) {
    const C d = x - mean;
    return scalar::mul(d, d);
  }));
  const double rest = exact - static_cast<double>(mean);
  const auto variance = static_cast<C>(squares * inverse - rest * rest + work.eps);
  return {mean, C(1) / std::sqrt(variance)};
}

template <class C>
__device__ void store_statistics(const NormWork& work, const RowPlace& place,
                                 const Statistics<C>& s) {
  if (!place.leads()) return;
  if (work.mean != nullptr) static_cast<C*>(work.mean)[place.row] = s.mean;
  static_cast<C*>(work.rstd)[place.row] = s.rstd;
}

// One pack of y, from the elements of x as x(j).
template <class T, class X>
__device__ Pack<T> normalized(const NormWork& work, const Statistics<ComputeOf<T>>& s,
                              std::int64_t group, std::int64_t pack, const X& x) {
  using C = ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount;
  C weight[kCount], bias[kCount];
  cuda::load_channels<T>(work.weight, work.geometry, group, pack * kCount, C(1), weight);
  cuda::load_channels<T>(work.bias, work.geometry, group, pack * kCount, C(0), bias);
  Pack<T> out;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    out.values[j] = convert_element<T>(scalar::fma((x(j) - s.mean) * s.rstd, weight[j], bias[j]));
  }
  return out;
}

// The group of a row.
__device__ inline std::int64_t group_of(const NormWork& work, const RowPlace& place) {
  return work.geometry.groups == 1 ? 0 : place.row % work.geometry.groups;
}

// h = x + residual, rounded, for each pack of this thread; stored, and kept in `packs`.
template <class T, int kPacks>
__device__ void add_residual(const NormWork& work, const RowPlace& place,
                             cuda::Words (&packs)[kPacks]) {
  const cuda::PackedRow<T> residual(work.residual, place, work.plan),
      sum(work.sum, place, work.plan);
  cuda::Words others[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) others[k] = residual.load(k * work.plan.lanes + place.lane, T{});
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    Pack<T> h;
#pragma unroll
    for (int j = 0; j < Pack<T>::kCount; ++j)
      h.values[j] =
          convert_element<T>(cuda::element<T>(packs[k], j) + cuda::element<T>(others[k], j));
    packs[k] = std::bit_cast<cuda::Words>(h);
    sum.store(k * work.plan.lanes + place.lane, h);
  }
}

template <class T>
__global__ void __launch_bounds__(kMostLanes)
    row_norm_held_kernel(const __grid_constant__ NormWork work) {
  using C = ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount, kPacks = kHeldPacks<T>;
  const RowPlace place(work.plan);
  const int lanes = work.plan.lanes;
  const cuda::PackedRow<T> x(work.x, place, work.plan), y(work.y, place, work.plan);
  cuda::Words packs[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) packs[k] = x.load(k * lanes + place.lane, T{});
  if (work.residual.data != nullptr) add_residual<T>(work, place, packs);
  const Statistics<C> s = statistics<C>(work, [&](auto term) {
    C total = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!x.has(k * lanes + place.lane)) continue;
#pragma unroll
      for (int j = 0; j < kCount; ++j) total += term(cuda::element<T>(packs[k], j));
    }
    return cuda::row_sum(work.plan, total);
  });
  store_statistics(work, place, s);
  const std::int64_t group = group_of(work, place);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int pack = k * lanes + place.lane;
    if (!x.has(pack)) continue;
    y.store(pack, normalized<T>(work, s, group, pack,
                                [&](int j) { return cuda::element<T>(packs[k], j); }));
  }
}

// Stores h = x + residual for all packs of this thread.
template <class T>
__device__ void store_sum(const NormWork& work, const RowPlace& place) {
  using C = ComputeOf<T>;
  const Row<T> x(work.x, place), residual(work.residual, place), sum(work.sum, place);
  cuda::for_batches<1>(work.plan, place, x, T{}, [&](const Pack<T>(&packs)[1], std::int64_t pack) {
    Pack<T> h = residual.load(pack, T{});
#pragma unroll
    for (int j = 0; j < Pack<T>::kCount; ++j)
      h.values[j] = convert_element<T>(convert_element<C>(packs[0].values[j]) +
                                       convert_element<C>(h.values[j]));
    sum.store(pack, h);
  });
}

template <class T>
__global__ void __launch_bounds__(kMostLanes)
    row_norm_any_kernel(const __grid_constant__ NormWork work) {
  using C = ComputeOf<T>;
  constexpr int kCount = Pack<T>::kCount;
  const RowPlace place(work.plan);
  if (work.residual.data != nullptr) store_sum<T>(work, place);
  // A thread reads only those parts of the sum that it wrote itself.
  const Row<T> x(work.residual.data != nullptr ? work.sum : work.x, place), y(work.y, place);
  const Statistics<C> s = statistics<C>(work, [&](auto term) {
    C total = 0;
    cuda::for_batches<1>(work.plan, place, x, T{},
                         [&](const Pack<T>(&packs)[1], std::int64_t pack) {
                           const int valid = x.valid(pack);
#pragma unroll
                           for (int j = 0; j < kCount; ++j) {
                             if (j < valid) total += term(convert_element<C>(packs[0].values[j]));
                           }
                         });
    return cuda::row_sum(work.plan, total);
  });
  store_statistics(work, place, s);
  const std::int64_t group = group_of(work, place);
  cuda::for_batches<1>(work.plan, place, x, T{}, [&](const Pack<T>(&packs)[1], std::int64_t pack) {
    y.store(pack, normalized<T>(work, s, group, pack,
                                [&](int j) { return convert_element<C>(packs[0].values[j]); }));
  });
}

NormWork work_of(const RowNormKernel::Args& a) {
  const std::int64_t n = a.shape.length();
  NormWork work;
  work.geometry = cuda::norm_geometry(a.shape);
  work.x = cuda::norm_rows(a.x.data, a.x.dtype, n);
  work.y = cuda::norm_rows(a.y.data, a.y.dtype, n);
  work.residual.packed = work.sum.packed = true;  // if there is no residual
  if (a.residual.defined()) {
    work.residual = cuda::norm_rows(a.residual.data, a.x.dtype, n);
    work.sum = cuda::norm_rows(a.sum.data, a.x.dtype, n);
  }
  if (a.weight.defined()) work.weight = cuda::channels_of(a.weight, a.shape);
  if (a.bias.defined()) work.bias = cuda::channels_of(a.bias, a.shape);
  work.mean = a.mean.data;
  work.rstd = a.rstd.data;
  work.centered = a.centered;
  work.eps = a.eps;
  return work;
}

}  // namespace

void RowNormKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.shape.rows() == 0) return;
  if (a.shape.length() == 0) {
    for (const View& statistic : {a.mean, a.rstd}) {
      if (!statistic.defined()) continue;
      const auto bytes = static_cast<std::size_t>(a.shape.rows()) * a.element();
      cuda::check_cuda(cudaMemsetAsync(statistic.data, 0, bytes, stream), kName, "cudaMemsetAsync");
    }
    return;
  }
  NormWork work = work_of(a);
  cuda::with_row_type(a.x.dtype, [&]<class T>() {
    // As few threads as can keep a row: up to 1,024 elements of 16 bits are a warp's, without barriers.
    work.plan = cuda::plan_rows(a.shape.rows(), a.shape.length(),
                                {.pack = Pack<T>::kCount,
                                 .held_packs = kHeldPacks<T>,
                                 .wanted_packs = kHeldPacks<T>,
                                 .most_lanes = kMostLanes});
    const cuda::Grid grid = cuda::row_grid(work.plan);
    if constexpr (!std::is_same_v<T, double>) {
      if (cuda::takes_packed_rows(work.plan, Pack<T>::kCount, work.x, work.residual, work.sum,
                                  work.y))
        return cuda::start(kName, row_norm_held_kernel<T>, grid, stream, work);
    }
    cuda::start(kName, row_norm_any_kernel<T>, grid, stream, work);
  });
}

}  // namespace tessera
