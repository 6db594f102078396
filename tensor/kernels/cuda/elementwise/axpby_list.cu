#include "tessera/tensor/kernels/axpby_list.h"

#include "tessera/tensor/kernels/cuda/elementwise/segment_step.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

enum Tensors { kX, kY, kTensors };

/// Few enough for 4 KiB of parameters: a launch with more costs the host more, and a parameter group
/// rarely has more tensors.
constexpr int kMostSegments = 64;

template <class C>
struct AxpbyPart : cuda::SegmentTensors<kTensors> {
  AxpbyPart() = default;
  AxpbyPart(const AxpbyListKernel::Segment& s, const ConstView& number)
      : factor(number.data),
        alpha(static_cast<C>(s.alpha)),
        beta(static_cast<C>(s.beta)),
        factor_dtype(number.dtype),
        adds(s.beta != 0) {
    numel = s.y.numel();
    set(kX, s.x);
    set(kY, s.y);
  }
  const void* factor;  // null: alpha
  C alpha;
  C beta;
  DType factor_dtype;
  bool adds;
};

template <class C>
using List = cuda::SegmentList<AxpbyPart<C>, kMostSegments>;

template <class C>
__device__ C alpha_of(const AxpbyPart<C>& s) {
  if (s.factor == nullptr) return s.alpha;
  C value{};
  cuda::with_floating_element(s.factor_dtype, [&]<class T>() {
    value = convert_element<C>(*static_cast<const T*>(s.factor));
  });
  return value;
}

// As on the CPU, a plain copy has no multiplication.
template <class C>
__global__ void __launch_bounds__(cuda::kThreads)
    axpby_list_kernel(const __grid_constant__ List<C> list) {
  const cuda::SegmentPart part = cuda::part_of(list, blockIdx.x);
  const AxpbyPart<C>& s = list.segments[part.segment];
  const C alpha = alpha_of(s);
  cuda::step_part(part, s.packs, [&]<int N>(std::int64_t at) {
    const auto x_bits = cuda::load_segment<N, C>(s, kX, at);
    C x[N], y[N];
    if (s.adds) cuda::values_of(cuda::load_segment<N, C>(s, kY, at), s.dtypes[kY], y);
    cuda::values_of(x_bits, s.dtypes[kX], x);
    if (s.adds) {
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = scalar::mul(alpha, x[i]) + scalar::mul(s.beta, y[i]);
    } else if (alpha != C{1}) {
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = scalar::mul(alpha, x[i]);
    }
    cuda::store_segment(s, kY, at, x);
  });
}

template <class C>
void launch(CudaStream stream, const AxpbyListKernel::Args& a) {
  const auto convert = [&](const AxpbyListKernel::Segment& segment, AxpbyPart<C>* out) {
    if (AxpbyListKernel::compute(segment) != dtype_of<C>) return false;
    *out = AxpbyPart<C>(segment, a.factor);
    return true;
  };
  cuda::for_each_list<List<C>>(a.segments, convert, [&](const List<C>& list) {
    cuda::start(AxpbyListKernel::kName, axpby_list_kernel<C>,
                {.blocks = list.chunks(), .threads = cuda::kThreads}, stream, list);
  });
}

}  // namespace

void AxpbyListKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  launch<float>(stream, a);
  launch<double>(stream, a);
}

}  // namespace tessera
