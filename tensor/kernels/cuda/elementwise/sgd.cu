#include "tessera/tensor/kernels/sgd.h"

#include "tessera/tensor/kernels/cuda/elementwise/segment_step.h"
#include "tessera/tensor/kernels/math/optimizer_math.h"

namespace tessera {
namespace {

enum Tensors { kParameter, kGradient, kMomentum, kTensors };

template <class C>
struct Part : cuda::SegmentTensors<kTensors> {
  Part() = default;
  explicit Part(const SgdKernel::Segment& s) : factors(s) {
    numel = s.parameter.numel();
    set(kParameter, s.parameter);
    set(kGradient, s.gradient);
    set(kMomentum, s.momentum);
  }
  optimizer::SgdFactors<C> factors;
};

template <class C>
__global__ void __launch_bounds__(cuda::kThreads)
    sgd_kernel(const __grid_constant__ cuda::SegmentList<Part<C>> list) {
  const cuda::SegmentPart part = cuda::part_of(list, blockIdx.x);
  const Part<C>& s = list.segments[part.segment];
  cuda::step_part(part, s.packs, [&]<int N>(std::int64_t at) {
    const bool has_momentum = s.data[kMomentum] != nullptr;
    const auto p_bits = cuda::load_segment<N, C>(s, kParameter, at);
    const auto g_bits = cuda::load_segment<N, C>(s, kGradient, at);
    C p[N], g[N], m[N] = {};
    if (has_momentum)
      cuda::values_of(cuda::load_segment<N, C>(s, kMomentum, at), s.dtypes[kMomentum], m);
    cuda::values_of(p_bits, s.dtypes[kParameter], p);
    cuda::values_of(g_bits, s.dtypes[kGradient], g);
    if (has_momentum) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const auto moved = optimizer::sgd_with_momentum(s.factors, p[i], g[i], m[i]);
        p[i] = moved.parameter;
        m[i] = moved.momentum;
      }
      cuda::store_segment(s, kMomentum, at, m);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) p[i] = optimizer::sgd_without_momentum(s.factors, p[i], g[i]);
    }
    cuda::store_segment(s, kParameter, at, p);
  });
}

}  // namespace

void SgdKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  cuda::step_segments<float>(kName, sgd_kernel<float>, stream, a.segments);
  cuda::step_segments<double>(kName, sgd_kernel<double>, stream, a.segments);
}

}  // namespace tessera
