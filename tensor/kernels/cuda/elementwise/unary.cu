#include "tessera/tensor/kernels/elementwise.h"

#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/map_functors.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed.h"

namespace tessera {
namespace {

template <class C>
__global__ void __launch_bounds__(cuda::kThreads, cuda::kBlocksEach<C>)
    unary_kernel(const __grid_constant__ cuda::MapWork<C, 1> work, UnaryOp op) {
  cuda::for_tiles(work.runs, [&](const cuda::Part& part) {
    C in[1][cuda::kGroup<C>];
    cuda::load_inputs(work, part, in);
    cuda::apply_op<functors::Unary>(op, in);
    cuda::store_result(work, part, in[0]);
  });
}

// Returns false for launches that the general kernel takes.
bool try_packed(CudaStream stream, const UnaryKernel::Args& a) {
  if (a.x.dtype != a.y.dtype || a.compute != DType::kF32 || !cuda::is_packed(a.y, a.x))
    return false;
  const auto with = [&](const auto& functor) {
    return cuda::with_16_bits(a.y.dtype, [&]<class T>() {
      cuda::start_packed<T, T>(UnaryKernel::kName, stream, functor, a.y, a.x);
    });
  };
  switch (a.op) {
    case UnaryOp::kRelu:
      return with(functors::Relu{});
    case UnaryOp::kGeluTanh:
      return with(functors::GeluTanhBy<cuda::FastSigmoid>{});
    case UnaryOp::kSilu:
      return with(functors::SiluBy<cuda::FastSigmoid>{});
    default:
      return false;
  }
}

}  // namespace

void UnaryKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0 || try_packed(stream, a)) return;
  with_compute_type(a.compute, [&]<class C>() {
    const auto work = cuda::map_work<C, 1>(a.y, {Operand(a.x)});
    cuda::start(kName, unary_kernel<C>, cuda::grid_of(work.runs), stream, work, a.op);
  });
}

}  // namespace tessera
