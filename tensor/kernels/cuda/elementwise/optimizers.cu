#include "tessera/tensor/kernels/optimizers.h"

#include "tessera/tensor/kernels/cuda/elementwise/segment_step.h"
#include "tessera/tensor/kernels/math/optimizer_math.h"

namespace tessera {
namespace {

namespace adam {
enum Tensors { kParameter, kGradient, kAverage, kSquare, kLargest, kCopy, kTensors };
}

template <class C>
struct AdamPart : cuda::SegmentTensors<adam::kTensors> {
  AdamPart() = default;
  explicit AdamPart(const AdamKernel::Segment& s) : factors(s) {
    numel = s.parameter.numel();
    set(adam::kParameter, s.parameter);
    set(adam::kGradient, s.gradient);
    set(adam::kAverage, s.exp_avg);
    set(adam::kSquare, s.exp_avg_sq);
    set(adam::kLargest, s.max_exp_avg_sq);
    set(adam::kCopy, s.copy);
  }
  optimizer::AdamFactors<C> factors;
};

template <class C>
__global__ void __launch_bounds__(cuda::kThreads)
    adam_kernel(const __grid_constant__ cuda::SegmentList<AdamPart<C>> list,
                const double* gradient_scale) {
  const cuda::SegmentPart part = cuda::part_of(list, blockIdx.x);
  const AdamPart<C>& s = list.segments[part.segment];
  const auto factors = optimizer::scaled(s.factors, gradient_scale);
  cuda::step_part(part, s.packs, [&]<int N>(std::int64_t at) {
    const bool amsgrad = s.data[adam::kLargest] != nullptr;
    const auto p_bits = cuda::load_segment<N, C>(s, adam::kParameter, at);
    const auto g_bits = cuda::load_segment<N, C>(s, adam::kGradient, at);
    const auto m_bits = cuda::load_segment<N, C>(s, adam::kAverage, at);
    const auto v_bits = cuda::load_segment<N, C>(s, adam::kSquare, at);
    C p[N], g[N], m[N], v[N], largest[N] = {};
    if (amsgrad)
      cuda::values_of(cuda::load_segment<N, C>(s, adam::kLargest, at), s.dtypes[adam::kLargest],
                      largest);
    cuda::values_of(p_bits, s.dtypes[adam::kParameter], p);
    cuda::values_of(g_bits, s.dtypes[adam::kGradient], g);
    cuda::values_of(m_bits, s.dtypes[adam::kAverage], m);
    cuda::values_of(v_bits, s.dtypes[adam::kSquare], v);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto moved = optimizer::adam_averages(factors, p[i], g[i], m[i], v[i]);
      m[i] = moved.average;
      v[i] = moved.square;
      largest[i] = amsgrad && largest[i] > v[i] ? largest[i] : v[i];
      p[i] = optimizer::adam_stepped(factors, moved, largest[i]);
    }
    cuda::store_segment(s, adam::kParameter, at, p);
    cuda::store_segment(s, adam::kAverage, at, m);
    cuda::store_segment(s, adam::kSquare, at, v);
    if (amsgrad) cuda::store_segment(s, adam::kLargest, at, largest);
    if (s.data[adam::kCopy] != nullptr) cuda::store_segment(s, adam::kCopy, at, p);
  });
}

}  // namespace

void AdamKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  cuda::step_segments<float>(kName, adam_kernel<float>, stream, a);
  cuda::step_segments<double>(kName, adam_kernel<double>, stream, a);
}

namespace {

namespace lion {
enum Tensors { kParameter, kGradient, kAverage, kTensors };
}

template <class C>
struct LionPart : cuda::SegmentTensors<lion::kTensors> {
  LionPart() = default;
  explicit LionPart(const LionKernel::Segment& s) : factors(s) {
    numel = s.parameter.numel();
    set(lion::kParameter, s.parameter);
    set(lion::kGradient, s.gradient);
    set(lion::kAverage, s.exp_avg);
  }
  optimizer::LionFactors<C> factors;
};

template <class C>
__global__ void __launch_bounds__(cuda::kThreads)
    lion_kernel(const __grid_constant__ cuda::SegmentList<LionPart<C>> list,
                const double* gradient_scale) {
  const cuda::SegmentPart part = cuda::part_of(list, blockIdx.x);
  const LionPart<C>& s = list.segments[part.segment];
  const auto factors = optimizer::scaled(s.factors, gradient_scale);
  cuda::step_part(part, s.packs, [&]<int N>(std::int64_t at) {
    const auto p_bits = cuda::load_segment<N, C>(s, lion::kParameter, at);
    const auto g_bits = cuda::load_segment<N, C>(s, lion::kGradient, at);
    const auto m_bits = cuda::load_segment<N, C>(s, lion::kAverage, at);
    C p[N], g[N], m[N];
    cuda::values_of(p_bits, s.dtypes[lion::kParameter], p);
    cuda::values_of(g_bits, s.dtypes[lion::kGradient], g);
    cuda::values_of(m_bits, s.dtypes[lion::kAverage], m);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto moved = optimizer::lion_element(factors, p[i], g[i], m[i]);
      p[i] = moved.parameter;
      m[i] = moved.average;
    }
    cuda::store_segment(s, lion::kParameter, at, p);
    cuda::store_segment(s, lion::kAverage, at, m);
  });
}

}  // namespace

void LionKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  cuda::step_segments<float>(kName, lion_kernel<float>, stream, a);
  cuda::step_segments<double>(kName, lion_kernel<double>, stream, a);
}

namespace {

namespace sgd {
enum Tensors { kParameter, kGradient, kMomentum, kTensors };
}

template <class C>
struct SgdPart : cuda::SegmentTensors<sgd::kTensors> {
  SgdPart() = default;
  explicit SgdPart(const SgdKernel::Segment& s) : factors(s) {
    numel = s.parameter.numel();
    set(sgd::kParameter, s.parameter);
    set(sgd::kGradient, s.gradient);
    set(sgd::kMomentum, s.momentum);
  }
  optimizer::SgdFactors<C> factors;
};

template <class C>
__global__ void __launch_bounds__(cuda::kThreads)
    sgd_kernel(const __grid_constant__ cuda::SegmentList<SgdPart<C>> list,
               const double* gradient_scale) {
  const cuda::SegmentPart part = cuda::part_of(list, blockIdx.x);
  const SgdPart<C>& s = list.segments[part.segment];
  const auto factors = optimizer::scaled(s.factors, gradient_scale);
  cuda::step_part(part, s.packs, [&]<int N>(std::int64_t at) {
    const bool has_momentum = s.data[sgd::kMomentum] != nullptr;
    const auto p_bits = cuda::load_segment<N, C>(s, sgd::kParameter, at);
    const auto g_bits = cuda::load_segment<N, C>(s, sgd::kGradient, at);
    C p[N], g[N], m[N] = {};
    if (has_momentum)
      cuda::values_of(cuda::load_segment<N, C>(s, sgd::kMomentum, at), s.dtypes[sgd::kMomentum], m);
    cuda::values_of(p_bits, s.dtypes[sgd::kParameter], p);
    cuda::values_of(g_bits, s.dtypes[sgd::kGradient], g);
    if (has_momentum) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const auto moved = optimizer::sgd_with_momentum(factors, p[i], g[i], m[i]);
        p[i] = moved.parameter;
        m[i] = moved.momentum;
      }
      cuda::store_segment(s, sgd::kMomentum, at, m);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) p[i] = optimizer::sgd_without_momentum(factors, p[i], g[i]);
    }
    cuda::store_segment(s, sgd::kParameter, at, p);
  });
}

}  // namespace

void SgdKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  cuda::step_segments<float>(kName, sgd_kernel<float>, stream, a);
  cuda::step_segments<double>(kName, sgd_kernel<double>, stream, a);
}

}  // namespace tessera
