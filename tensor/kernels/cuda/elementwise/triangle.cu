#include "tessera/tensor/kernels/triangle.h"

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/map.h"

namespace tessera {
namespace {

struct Triangle {
  cuda::Runs<2> runs;  // x, y
  const void* x;
  void* y;
  cuda::Divisor<std::uint64_t> rows;
  cuda::Divisor<std::uint64_t> columns;
  std::int64_t diagonal;
  bool upper;
};

// Whether an element, given its row-major number, is kept.
__device__ __forceinline__ bool stays(const Triangle& t, std::int64_t element) {
  const auto i = static_cast<std::uint64_t>(element);
  const std::uint64_t line = cuda::quotient(i, t.columns),
                      row = line - cuda::quotient(line, t.rows) * t.rows.value;
  const auto distance = static_cast<std::int64_t>(i - line * t.columns.value - row);  // j - i
  return t.upper ? distance >= t.diagonal : distance <= t.diagonal;
}

template <class U>
__global__ void __launch_bounds__(cuda::kThreads)
    triangle_kernel(const __grid_constant__ Triangle t) {
  cuda::for_tiles(t.runs, [&](const cuda::Part& part) {
    U values[8];
    cuda::load_operand(t.runs, 0, part, t.x, values);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (!stays(t, cuda::element_of(part, k))) values[k] = U{0};
    }
    cuda::store_operand(t.runs, 1, part, t.y, values);
  });
}

}  // namespace

void TriangleKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0) return;
  const int ndim = a.y.shape.ndim();
  const Triangle t = {
      .runs = cuda::plan_runs<2>(a.y.shape, {cuda::run_operand(a.x), cuda::run_operand(a.y)}, 8),
      .x = a.x.data,
      .y = a.y.data,
      .rows = cuda::make_divisor(static_cast<std::uint64_t>(a.y.shape[ndim - 2])),
      .columns = cuda::make_divisor(static_cast<std::uint64_t>(a.y.shape[ndim - 1])),
      .diagonal = a.diagonal,
      .upper = a.upper};
  cuda::with_width(a.y.dtype, [&]<class U>() {
    cuda::start(kName, triangle_kernel<U>, cuda::grid_of(t.runs), stream, t);
  });
}

}  // namespace tessera
