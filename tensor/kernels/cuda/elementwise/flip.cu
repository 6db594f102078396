#include "tessera/tensor/kernels/flip.h"

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/map.h"

namespace tessera {
namespace {

template <class U>
__global__ void __launch_bounds__(cuda::kThreads)
    flip_kernel(const __grid_constant__ cuda::Runs<2> runs, const void* x, void* y) {
  cuda::for_tiles(runs, [&](const cuda::Part& part) {
    U values[8];
    cuda::load_operand(runs, 0, part, x, values);
    cuda::store_operand(runs, 1, part, y, values);
  });
}

// x from its last elements on, with negative strides.
ConstView reversed(const FlipKernel::Args& a) {
  ConstView x = a.x;
  std::int64_t first = 0;
  for (int d = 0; d < x.shape.ndim(); ++d) {
    if (!a.reversed[static_cast<std::size_t>(d)]) continue;
    first += (x.shape[d] - 1) * x.strides[d];
    x.strides[d] = -x.strides[d];
  }
  x.data = a.x.as<std::byte>() + first * static_cast<std::int64_t>(dtype_size(x.dtype));
  return x;
}

}  // namespace

void FlipKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  const ConstView x = reversed(a);
  const auto runs =
      cuda::plan_runs<2>(a.y.shape, {cuda::run_operand(x), cuda::run_operand(a.y)}, 8);
  cuda::with_width(a.y.dtype, [&]<class U>() {
    cuda::start(kName, flip_kernel<U>, cuda::grid_of(runs), stream, runs, x.data, a.y.data);
  });
}

}  // namespace tessera
