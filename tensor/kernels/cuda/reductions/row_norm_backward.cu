// The gradient of x, for group norms and long rows; other norms: row_norm_one_pass.cu. Aligned rows of up to 8,192 elements (16 and 32 bits) are read once and kept
// in registers; other rows are read twice, with the same bits. Sums are trees over the row's
// threads, unlike the CPU's lanes: equal to the CPU's up to rounding. row_norm_parameters.cu
// computes the gradients of weight and bias.

#include "tessera/tensor/kernels/cuda/reductions/norm_rows.h"

namespace tessera {
namespace {

using cuda::ComputeOf;
using cuda::Pack;
using cuda::Row;
using cuda::RowPlace;

// Of a thread, of dy and of x.
template <class T>
constexpr int kHeldPacks = cuda::held_packs<T>(16);
constexpr int kMostLanes = 512;

struct BackwardWork {
  cuda::RowPlan plan;
  cuda::NormGeometry geometry;
  cuda::RowOperand dy;
  cuda::RowOperand x;
  cuda::RowOperand dx;
  cuda::RowOperand added;  // no data if there is none
  cuda::Channels weight;
  const void* mean = nullptr;
  const void* rstd = nullptr;
};

// dx = rstd * (g - mean(g) - h * mean(g * h)), with g = dy * weight and h = (x - mean) * rstd.
template <class T>
class Gradient {
  using C = ComputeOf<T>;
  static constexpr int kCount = Pack<T>::kCount;

 public:
  __device__ Gradient(const BackwardWork& work, const RowPlace& place) : work_(work) {
    group_ = work.geometry.groups == 1 ? 0 : place.row % work.geometry.groups;
    if (!place.exists) return;
    if (work.mean != nullptr) mean_ = static_cast<const C*>(work.mean)[place.row];
    rstd_ = static_cast<const C*>(work.rstd)[place.row];
  }

  // Adds the terms of the first `valid` elements of a pack; dy(j) and x(j) give its elements.
  template <class Dy, class X>
  __device__ void add(std::int64_t pack, int valid, const Dy& dy, const X& x) {
    C weight[kCount];
    cuda::load_channels<T>(work_.weight, work_.geometry, group_, pack * kCount, C(1), weight);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (j >= valid) continue;
      const C g = dy(j) * weight[j];
      slope_ += g;
      along_ += scalar::mul(g, (x(j) - mean_) * rstd_);
    }
  }
  // All threads must call it, between add() and of().
  __device__ void finish_sums() {
    const double inverse = work_.geometry.inverse_length;
    const C along = cuda::row_sum(work_.plan, along_);
    along_ = static_cast<C>(static_cast<double>(along) * inverse);
    if (work_.mean == nullptr) {
      slope_ = C(0);
      return;
    }
    const C slope = cuda::row_sum(work_.plan, slope_);
    slope_ = static_cast<C>(static_cast<double>(slope) * inverse);
  }
  template <class Dy, class X>
  __device__ Pack<T> of(const RowPlace& place, std::int64_t pack, const Dy& dy, const X& x) const {
    C weight[kCount];
    cuda::load_channels<T>(work_.weight, work_.geometry, group_, pack * kCount, C(1), weight);
    Pack<T> out;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const C normal = (x(j) - mean_) * rstd_;
      const C g = scalar::mul(dy(j), weight[j]);
      out.values[j] = convert_element<T>(scalar::fma(-normal, along_, g - slope_) * rstd_);
    }
    if (work_.added.data == nullptr) return out;
    const Pack<T> added = Row<T>(work_.added, place).load(pack, T{});
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      out.values[j] = convert_element<T>(convert_element<C>(out.values[j]) +
                                         convert_element<C>(added.values[j]));
    return out;
  }

 private:
  const BackwardWork& work_;
  std::int64_t group_;
  C mean_ = 0, rstd_ = 0;
  C slope_ = 0, along_ = 0;  // sums, then means
};

template <class T>
__global__ void __launch_bounds__(kMostLanes)
    row_norm_backward_held_kernel(const __grid_constant__ BackwardWork work) {
  constexpr int kCount = Pack<T>::kCount;
  const RowPlace place(work.plan);
  const int lanes = work.plan.lanes;
  const cuda::PackedRow<T> dy(work.dy, place, work.plan), x(work.x, place, work.plan),
      dx(work.dx, place, work.plan);
  cuda::Words slopes[kHeldPacks<T>], values[kHeldPacks<T>];
#pragma unroll
  for (int k = 0; k < kHeldPacks<T>; ++k) {
    slopes[k] = dy.load(k * lanes + place.lane, T{});
    values[k] = x.load(k * lanes + place.lane, T{});
  }
  Gradient<T> gradient(work, place);
#pragma unroll
  for (int k = 0; k < kHeldPacks<T>; ++k) {
    if (!dy.has(k * lanes + place.lane)) continue;
    gradient.add(
        k * lanes + place.lane, kCount, [&](int j) { return cuda::element<T>(slopes[k], j); },
        [&](int j) { return cuda::element<T>(values[k], j); });
  }
  gradient.finish_sums();
#pragma unroll
  for (int k = 0; k < kHeldPacks<T>; ++k) {
    const int pack = k * lanes + place.lane;
    if (!dy.has(pack)) continue;
    dx.store(pack, gradient.of(
                       place, pack, [&](int j) { return cuda::element<T>(slopes[k], j); },
                       [&](int j) { return cuda::element<T>(values[k], j); }));
  }
}

template <class T>
__global__ void __launch_bounds__(kMostLanes)
    row_norm_backward_any_kernel(const __grid_constant__ BackwardWork work) {
  using C = ComputeOf<T>;
  const RowPlace place(work.plan);
  const Row<T> dy(work.dy, place), x(work.x, place), dx(work.dx, place);
  Gradient<T> gradient(work, place);
  cuda::for_batches<1>(
      work.plan, place, dy, T{}, [&](const Pack<T>(&slopes)[1], std::int64_t pack) {
        const Pack<T> values = x.load(pack, T{});
        gradient.add(
            pack, x.valid(pack), [&](int j) { return convert_element<C>(slopes[0].values[j]); },
            [&](int j) { return convert_element<C>(values.values[j]); });
      });
  gradient.finish_sums();
  cuda::for_batches<1>(
      work.plan, place, dy, T{}, [&](const Pack<T>(&slopes)[1], std::int64_t pack) {
        const Pack<T> values = x.load(pack, T{});
        dx.store(pack,
                 gradient.of(
                     place, pack, [&](int j) { return convert_element<C>(slopes[0].values[j]); },
                     [&](int j) { return convert_element<C>(values.values[j]); }));
      });
}

void input_gradient(CudaStream stream, const RowNormBackwardKernel::Args& a) {
  const std::int64_t n = a.shape.length();
  if (a.shape.rows() == 0 || n == 0) return;
  BackwardWork work;
  work.geometry = cuda::norm_geometry(a.shape);
  work.dy = cuda::norm_rows(a.dy.data, a.dy.dtype, n);
  work.x = cuda::norm_rows(a.x.data, a.x.dtype, n);
  work.dx = cuda::norm_rows(a.dx.data, a.dx.dtype, n);
  if (a.added.defined()) work.added = cuda::norm_rows(a.added.data, a.added.dtype, n);
  if (a.weight.defined()) work.weight = cuda::channels_of(a.weight, a.shape);
  work.mean = a.mean.data;
  work.rstd = a.rstd.data;
  cuda::with_row_type(a.x.dtype, [&]<class T>() {
    work.plan = cuda::plan_rows_of<T>(a.shape.rows(), n, kHeldPacks<T>, kMostLanes);
    const cuda::Grid grid = cuda::row_grid(work.plan);
    if constexpr (!std::is_same_v<T, double>) {
      if (cuda::takes_packed_rows(work.plan, Pack<T>::kCount, work.dy, work.x, work.dx))
        return cuda::start(RowNormBackwardKernel::kName, row_norm_backward_held_kernel<T>, grid,
                           stream, work);
    }
    cuda::start(RowNormBackwardKernel::kName, row_norm_backward_any_kernel<T>, grid, stream, work);
  });
}

}  // namespace

void RowNormBackwardKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (a.cuda_one_pass()) return cuda::row_norm_gradients(stream, a, scratch);
  if (a.dx.defined()) input_gradient(stream, a);
  if (a.dweight.defined() || a.dbias.defined()) cuda::parameter_gradients(stream, a, scratch);
}

}  // namespace tessera
