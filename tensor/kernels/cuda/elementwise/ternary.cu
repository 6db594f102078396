#include "tessera/tensor/kernels/elementwise.h"

#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/map_functors.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed.h"
#include "tessera/tensor/kernels/math/functors_ternary.h"

namespace tessera {
namespace {

template <class C>
__global__ void __launch_bounds__(cuda::kThreads, cuda::kBlocksEach<C>)
    ternary_kernel(const __grid_constant__ cuda::MapWork<C, 3> work, TernaryOp op, C factor) {
  cuda::for_tiles(work.runs, [&](const cuda::Part& part) {
    C in[3][cuda::kGroup<C>];
    cuda::load_inputs(work, part, in);
    cuda::apply_op<functors::Ternary>(op, in, factor);
    cuda::store_result(work, part, in[0]);
  });
}

// condition ? b : c
struct Choice {
  __device__ float operator()(float condition, float b, float c) const {
    return condition != 0.0f ? b : c;
  }
};
// The same where one of b and c is a number: for conditions that equal `when`.
struct ChoiceOfNumber {
  float number;
  bool when;

  __device__ float operator()(float condition, float other) const {
    return (condition != 0.0f) == when ? number : other;
  }
};
struct ClampToNumbers {
  float low, high;

  __device__ float operator()(float x) const { return functors::Clamp()(x, low, high, 0.0f); }
};

bool try_packed_where(CudaStream stream, const TernaryKernel::Args& args) {
  if (args.a.is_number() || args.a.view.dtype != DType::kBool) return false;
  const auto fits = [&](const Operand& x) {
    return x.is_number() ||
           (x.view.dtype == args.y.dtype && cuda::is_packed(args.y, args.a.view, x.view));
  };
  if (!fits(args.b) || !fits(args.c) || (args.b.is_number() && args.c.is_number())) return false;
  constexpr const char* kName = TernaryKernel::kName;
  return cuda::with_16_bits(args.y.dtype, [&]<class T>() {
    if (!args.b.is_number() && !args.c.is_number()) {
      return cuda::start_packed<T, bool, T, T>(kName, stream, Choice{}, args.y, args.a.view,
                                               args.b.view, args.c.view);
    }
    const bool when = args.b.is_number();
    const Operand &number = when ? args.b : args.c, &other = when ? args.c : args.b;
    const ChoiceOfNumber functor = {static_cast<float>(number.number), when};
    cuda::start_packed<T, bool, T>(kName, stream, functor, args.y, args.a.view, other.view);
  });
}

bool try_packed_clamp(CudaStream stream, const TernaryKernel::Args& args) {
  const ConstView& x = args.a.view;
  if (args.a.is_number() || !args.b.is_number() || !args.c.is_number()) return false;
  if (x.dtype != args.y.dtype || !cuda::is_packed(args.y, x)) return false;
  const ClampToNumbers functor = {static_cast<float>(args.b.number),
                                  static_cast<float>(args.c.number)};
  return cuda::with_16_bits(x.dtype, [&]<class T>() {
    cuda::start_packed<T, T>(TernaryKernel::kName, stream, functor, args.y, x);
  });
}

// Returns false for launches that the general kernel takes.
bool try_packed(CudaStream stream, const TernaryKernel::Args& args) {
  if (args.compute != DType::kF32) return false;
  if (args.op == TernaryOp::kWhere) return try_packed_where(stream, args);
  return args.op == TernaryOp::kClamp && try_packed_clamp(stream, args);
}

}  // namespace

void TernaryKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0 || try_packed(stream, a)) return;
  with_compute_type(a.compute, [&]<class C>() {
    const auto work = cuda::map_work<C, 3>(a.y, {a.a, a.b, a.c});
    cuda::start(kName, ternary_kernel<C>, cuda::grid_of(work.runs), stream, work, a.op,
                static_cast<C>(a.factor));
  });
}

}  // namespace tessera
