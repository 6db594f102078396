#include "tessera/tensor/kernels/elementwise.h"

#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/map_functors.h"

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

}  // namespace

void UnaryKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  with_compute_type(a.compute, [&]<class C>() {
    const auto work = cuda::map_work<C, 1>(a.y, {Operand(a.x)});
    cuda::start(kName, unary_kernel<C>, cuda::grid_of(work.runs), stream, work, a.op);
  });
}

}  // namespace tessera
