#include "tessera/tensor/kernels/adam.h"

#include "tessera/tensor/kernels/cuda/elementwise/segment_step.h"
#include "tessera/tensor/kernels/math/optimizer_math.h"

namespace tessera {
namespace {

enum Tensors { kParameter, kGradient, kAverage, kSquare, kLargest, kCopy, kTensors };

template <class C>
struct Part : cuda::SegmentTensors<kTensors> {
  Part() = default;
  explicit Part(const AdamKernel::Segment& s) : factors(s) {
    numel = s.parameter.numel();
    set(kParameter, s.parameter);
    set(kGradient, s.gradient);
    set(kAverage, s.exp_avg);
    set(kSquare, s.exp_avg_sq);
    set(kLargest, s.max_exp_avg_sq);
    set(kCopy, s.copy);
  }
  optimizer::AdamFactors<C> factors;
};

template <class C>
__global__ void __launch_bounds__(cuda::kThreads)
    adam_kernel(const __grid_constant__ cuda::SegmentList<Part<C>> list) {
  const cuda::SegmentPart part = cuda::part_of(list, blockIdx.x);
  const Part<C>& s = list.segments[part.segment];
  cuda::step_part(part, s.packs, [&]<int N>(std::int64_t at) {
    const bool amsgrad = s.data[kLargest] != nullptr;
    const auto p_bits = cuda::load_segment<N, C>(s, kParameter, at);
    const auto g_bits = cuda::load_segment<N, C>(s, kGradient, at);
    const auto m_bits = cuda::load_segment<N, C>(s, kAverage, at);
    const auto v_bits = cuda::load_segment<N, C>(s, kSquare, at);
    C p[N], g[N], m[N], v[N], largest[N] = {};
    if (amsgrad)
      cuda::values_of(cuda::load_segment<N, C>(s, kLargest, at), s.dtypes[kLargest], largest);
    cuda::values_of(p_bits, s.dtypes[kParameter], p);
    cuda::values_of(g_bits, s.dtypes[kGradient], g);
    cuda::values_of(m_bits, s.dtypes[kAverage], m);
    cuda::values_of(v_bits, s.dtypes[kSquare], v);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto moved = optimizer::adam_averages(s.factors, p[i], g[i], m[i], v[i]);
      m[i] = moved.average;
      v[i] = moved.square;
      largest[i] = amsgrad && largest[i] > v[i] ? largest[i] : v[i];
      p[i] = optimizer::adam_stepped(s.factors, moved, largest[i]);
    }
    cuda::store_segment(s, kParameter, at, p);
    cuda::store_segment(s, kAverage, at, m);
    cuda::store_segment(s, kSquare, at, v);
    if (amsgrad) cuda::store_segment(s, kLargest, at, largest);
    if (s.data[kCopy] != nullptr) cuda::store_segment(s, kCopy, at, p);
  });
}

}  // namespace

void AdamKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  cuda::step_segments<float>(kName, adam_kernel<float>, stream, a.segments);
  cuda::step_segments<double>(kName, adam_kernel<double>, stream, a.segments);
}

}  // namespace tessera
