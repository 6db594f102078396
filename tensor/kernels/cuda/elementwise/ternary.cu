#include "tessera/tensor/kernels/elementwise.h"

#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/map_functors.h"

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

}  // namespace

void TernaryKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  with_compute_type(a.compute, [&]<class C>() {
    const auto work = cuda::map_work<C, 3>(a.y, {a.a, a.b, a.c});
    cuda::start(kName, ternary_kernel<C>, cuda::grid_of(work.runs), stream, work, a.op,
                static_cast<C>(a.factor));
  });
}

}  // namespace tessera
