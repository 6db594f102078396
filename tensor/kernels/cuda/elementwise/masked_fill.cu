#include "tessera/tensor/kernels/masked_fill.h"

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/map.h"

namespace tessera {
namespace {

struct Fill {
  cuda::Runs<3> runs;  // x, mask, y
  const void* x;
  const void* mask;
  void* y;
};

template <class U>
__global__ void __launch_bounds__(cuda::kThreads)
    masked_fill_kernel(const __grid_constant__ Fill fill, U value) {
  cuda::for_tiles(fill.runs, [&](const cuda::Part& part) {
    U values[8];
    std::uint8_t set[8];
    cuda::load_operand(fill.runs, 0, part, fill.x, values);
    cuda::load_operand(fill.runs, 1, part, fill.mask, set);
#pragma unroll
    for (int k = 0; k < 8; ++k) values[k] = set[k] != 0 ? value : values[k];
    cuda::store_operand(fill.runs, 2, part, fill.y, values);
  });
}

}  // namespace

void MaskedFillKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  const Fill fill = {
      .runs = cuda::plan_runs<3>(
          a.y.shape, {cuda::run_operand(a.x), cuda::run_operand(a.mask), cuda::run_operand(a.y)},
          8),
      .x = a.x.data,
      .mask = a.mask.data,
      .y = a.y.data};
  cuda::with_width(a.y.dtype, [&]<class U>() {
    cuda::start(kName, masked_fill_kernel<U>, cuda::grid_of(fill.runs), stream, fill,
                cuda::element_bits<U>(a.y.dtype, a.value));
  });
}

}  // namespace tessera
