#include "tessera/tensor/kernels/elementwise.h"

#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/map_functors.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed.h"

namespace tessera {
namespace {

template <class C>
__global__ void __launch_bounds__(cuda::kThreads, cuda::kBlocksEach<C>)
    binary_kernel(const __grid_constant__ cuda::MapWork<C, 2> work, BinaryOp op) {
  cuda::for_tiles(work.runs, [&](const cuda::Part& part) {
    C in[2][cuda::kGroup<C>];
    cuda::load_inputs(work, part, in);
    cuda::apply_op<functors::Binary>(op, in);
    cuda::store_result(work, part, in[0]);
  });
}

// Returns false for launches that the general kernel takes.
bool try_packed(CudaStream stream, const BinaryKernel::Args& args) {
  const ConstView &a = args.a.view, &b = args.b.view;
  const bool same = a.dtype == args.y.dtype && b.dtype == args.y.dtype;
  if (!same || args.compute != DType::kF32 || !cuda::is_packed(args.y, a, b)) return false;
  const auto with = [&](const auto& functor) {
    return cuda::with_16_bits(args.y.dtype, [&]<class T>() {
      cuda::start_packed<T, T, T>(BinaryKernel::kName, stream, functor, args.y, a, b);
    });
  };
  switch (args.op) {
    case BinaryOp::kAdd:
      return with(functors::Add{});
    case BinaryOp::kMul:
      return with(functors::Mul{});
    case BinaryOp::kReluBackward:
      return with(functors::ReluBackward{});
    case BinaryOp::kGeluTanhBackward:
      return with(functors::GeluTanhBackwardBy<cuda::FastSigmoid>{});
    case BinaryOp::kSiluBackward:
      return with(functors::SiluBackwardBy<cuda::FastSigmoid>{});
    default:
      return false;
  }
}

}  // namespace

void BinaryKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0 || try_packed(stream, a)) return;
  with_compute_type(a.compute, [&]<class C>() {
    const auto work = cuda::map_work<C, 2>(a.y, {a.a, a.b});
    cuda::start(kName, binary_kernel<C>, cuda::grid_of(work.runs), stream, work, a.op);
  });
}

}  // namespace tessera
