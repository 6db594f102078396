#include "tessera/tensor/kernels/lion.h"

#include "tessera/tensor/kernels/cuda/elementwise/segment_step.h"
#include "tessera/tensor/kernels/math/optimizer_math.h"

namespace tessera {
namespace {

enum Tensors { kParameter, kGradient, kAverage, kTensors };

template <class C>
struct Part : cuda::SegmentTensors<kTensors> {
  Part() = default;
  explicit Part(const LionKernel::Segment& s) : factors(s) {
    numel = s.parameter.numel();
    set(kParameter, s.parameter);
    set(kGradient, s.gradient);
    set(kAverage, s.exp_avg);
  }
  optimizer::LionFactors<C> factors;
};

template <class C>
__global__ void __launch_bounds__(cuda::kThreads)
    lion_kernel(const __grid_constant__ cuda::SegmentList<Part<C>> list) {
  const cuda::SegmentPart part = cuda::part_of(list, blockIdx.x);
  const Part<C>& s = list.segments[part.segment];
  cuda::step_part(part, s.packs, [&]<int N>(std::int64_t at) {
    const auto p_bits = cuda::load_segment<N, C>(s, kParameter, at);
    const auto g_bits = cuda::load_segment<N, C>(s, kGradient, at);
    const auto m_bits = cuda::load_segment<N, C>(s, kAverage, at);
    C p[N], g[N], m[N];
    cuda::values_of(p_bits, s.dtypes[kParameter], p);
    cuda::values_of(g_bits, s.dtypes[kGradient], g);
    cuda::values_of(m_bits, s.dtypes[kAverage], m);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto moved = optimizer::lion_element(s.factors, p[i], g[i], m[i]);
      p[i] = moved.parameter;
      m[i] = moved.average;
    }
    cuda::store_segment(s, kParameter, at, p);
    cuda::store_segment(s, kAverage, at, m);
  });
}

}  // namespace

void LionKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  cuda::step_segments<float>(kName, lion_kernel<float>, stream, a.segments);
  cuda::step_segments<double>(kName, lion_kernel<double>, stream, a.segments);
}

}  // namespace tessera
