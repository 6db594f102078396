// 16 bytes of each operand at a time where all begin at multiples of 16 bytes. Of 16 bits: with the
// sigmoid of packed_math.h.

#include "tessera/tensor/kernels/swiglu.h"

#include <type_traits>

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed_math.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/math/functors.h"
#include "tessera/tensor/kernels/math/functors_binary.h"

namespace tessera {
namespace {

template <class T>
using ComputeOf = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
using SigmoidOf = std::conditional_t<sizeof(T) == 2, cuda::FastSigmoid, functors::Sigmoid>;

// x as it is once it was stored.
template <class T>
__device__ ComputeOf<T> rounded(ComputeOf<T> x) {
  return convert_element<ComputeOf<T>>(convert_element<T>(x));
}

template <class T>
__device__ ComputeOf<T> silu(ComputeOf<T> gate) {
  return rounded<T>(functors::SiluBy<SigmoidOf<T>>()(gate));
}

struct SwigluWork {
  const void* dy = nullptr;
  const void* gate = nullptr;
  const void* up = nullptr;
  void* y = nullptr;
  void* dgate = nullptr;
  void* dup = nullptr;
  std::int64_t numel = 0;
};

// One element, forward or back.
template <class T>
struct Forward {
  static constexpr bool kBack = false;
  static __device__ T y(ComputeOf<T> gate, ComputeOf<T> up) {
    return convert_element<T>(silu<T>(gate) * up);
  }
};
template <class T>
struct Back {
  static constexpr bool kBack = true;
  static __device__ T dgate(ComputeOf<T> dy, ComputeOf<T> gate, ComputeOf<T> up) {
    return convert_element<T>(functors::SiluBackwardBy<SigmoidOf<T>>()(rounded<T>(dy * up), gate));
  }
  static __device__ T dup(ComputeOf<T> dy, ComputeOf<T> gate) {
    return convert_element<T>(dy * silu<T>(gate));
  }
};

// `kCount` elements from index `first` on.
template <class T, int kCount, class F>
__device__ void compute(const SwigluWork& work, std::int64_t first) {
  using C = ComputeOf<T>;
  using Part = cuda::Run<T, kCount>;
  const auto at = [&](const void* data) {
    return *reinterpret_cast<const Part*>(static_cast<const T*>(data) + first);
  };
  const auto put = [&](void* data, const Part& values) {
    *reinterpret_cast<Part*>(static_cast<T*>(data) + first) = values;
  };
  const Part gates = at(work.gate), ups = at(work.up);
  if constexpr (!F::kBack) {
    Part y;
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      y.values[k] = F::y(convert_element<C>(gates.values[k]), convert_element<C>(ups.values[k]));
    put(work.y, y);
  } else {
    const Part slopes = at(work.dy);
    Part dgate, dup;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const C dy = convert_element<C>(slopes.values[k]), gate = convert_element<C>(gates.values[k]);
      dgate.values[k] = F::dgate(dy, gate, convert_element<C>(ups.values[k]));
      dup.values[k] = F::dup(dy, gate);
    }
    if (work.dgate != nullptr) put(work.dgate, dgate);
    if (work.dup != nullptr) put(work.dup, dup);
  }
}

// Runs of kCount elements, then the rest one by one.
template <class T, int kCount, class F>
__global__ void __launch_bounds__(cuda::kThreads)
    swiglu_kernel(const __grid_constant__ SwigluWork work) {
  const std::int64_t runs = work.numel / kCount;
  const std::int64_t thread = cuda::thread_index();
  if (thread < runs) compute<T, kCount, F>(work, thread * kCount);
  const std::int64_t rest = runs * kCount + thread;
  if (kCount > 1 && rest < work.numel && thread < kCount) compute<T, 1, F>(work, rest);
}

template <template <class> class F>
void start(const char* name, CudaStream stream, DType dtype, const SwigluWork& work, bool packed) {
  if (work.numel == 0) return;
  with_type(dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) {
      constexpr int kCount = 16 / static_cast<int>(sizeof(T));
      const std::int64_t runs = (work.numel + kCount - 1) / kCount;
      const auto grid = [](std::int64_t threads) {
        return cuda::Grid{
            .blocks = static_cast<unsigned>((threads + cuda::kThreads - 1) / cuda::kThreads),
            .threads = cuda::kThreads};
      };
      if (packed) {
        cuda::start(name, swiglu_kernel<T, kCount, F<T>>, grid(runs), stream, work);
      } else {
        cuda::start(name, swiglu_kernel<T, 1, F<T>>, grid(work.numel), stream, work);
      }
    }
  });
}

}  // namespace

void SwigluKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const SwigluWork work{
      .gate = a.gate.data, .up = a.up.data, .y = a.y.data, .numel = a.gate.numel()};
  const bool packed = cuda::is_pack_aligned(a.gate.data) && cuda::is_pack_aligned(a.up.data) &&
                      cuda::is_pack_aligned(a.y.data);
  start<Forward>(kName, stream, a.gate.dtype, work, packed);
}

void SwigluBackwardKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const SwigluWork work{.dy = a.dy.data,
                        .gate = a.gate.data,
                        .up = a.up.data,
                        .dgate = a.dgate.data,
                        .dup = a.dup.data,
                        .numel = a.gate.numel()};
  bool packed = cuda::is_pack_aligned(a.dgate.data) && cuda::is_pack_aligned(a.dup.data);
  for (const ConstView* x : {&a.dy, &a.gate, &a.up})
    packed = packed && cuda::is_pack_aligned(x->data);
  start<Back>(kName, stream, a.gate.dtype, work, packed);
}

}  // namespace tessera
