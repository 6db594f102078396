#include "tessera/tensor/kernels/arange.h"

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/math/scalar_math.h"

namespace tessera {
namespace {

struct Arange {
  void* y;
  DType dtype;
  std::int64_t n;
  double first;
  double step;
  double last;
  std::int64_t mirror;
};

__global__ void __launch_bounds__(cuda::kThreads) arange_kernel(const Arange a) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), a.n, [&](std::int64_t i) {
    const double value = i < a.mirror
                             ? scalar::fma(a.step, static_cast<double>(i), a.first)
                             : scalar::fma(-a.step, static_cast<double>(a.n - 1 - i), a.last);
    cuda::store_element(a.y, a.dtype, i, value);
  });
}

}  // namespace

void ArangeKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const std::int64_t n = a.y.shape[0];
  if (n == 0) return;
  const Arange arange = {.y = a.y.data,
                         .dtype = a.y.dtype,
                         .n = n,
                         .first = a.first,
                         .step = a.step,
                         .last = a.last,
                         .mirror = a.mirror};
  cuda::start(kName, arange_kernel, cuda::grid_for(n), stream, arange);
}

}  // namespace tessera
