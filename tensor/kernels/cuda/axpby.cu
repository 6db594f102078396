#include "tessera/tensor/kernels/axpby.h"

#include <cuda_runtime.h>

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/kernels/cuda/axpby_element.h"
#include "tessera/tensor/kernels/cuda/thread_place.h"

namespace tessera {
namespace {

template <class C>
__global__ void axpby_kernel(const __grid_constant__ cuda::AxpbyWork<C> work, std::int64_t n) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), n,
              [&](std::int64_t i) { cuda::axpby_element(work, i); });
}

template <class C>
void launch_work(CudaStream stream, const AxpbyKernel::Args& a, std::int64_t n) {
  cuda::AxpbyWork<C> work;
  const bool fills = !a.x.defined();
  work.x = fills ? nullptr : a.x.data;
  work.x_dtype = a.x.dtype;
  work.y = a.y.data;
  work.y_dtype = a.y.dtype;
  work.walk = cuda::make_walk(a.y.shape, fills ? a.y.strides : a.x.strides, a.y.strides);
  work.alpha = static_cast<C>(a.alpha);
  work.beta = static_cast<C>(a.beta);
  work.number = fills ? static_cast<C>(a.number) : C{0};
  axpby_kernel<C><<<cuda::blocks_for(n), cuda::kThreads, 0, stream>>>(work, n);
}

// Bytes as they are, which the copy engine moves.
bool is_plain_copy(const AxpbyKernel::Args& a) {
  return a.x.defined() && a.x.dtype == a.y.dtype && a.alpha == 1 && a.beta == 0 &&
         is_contiguous(a.y.shape, a.y.strides) && is_contiguous(a.y.shape, a.x.strides);
}

}  // namespace

void AxpbyKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  const std::int64_t n = a.y.numel();
  if (n == 0) return;
  if (is_plain_copy(a)) {
    const std::size_t bytes = static_cast<std::size_t>(n) * dtype_size(a.y.dtype);
    cuda::check_cuda(cudaMemcpyAsync(a.y.data, a.x.data, bytes, cudaMemcpyDeviceToDevice, stream),
                     kName, "cudaMemcpyAsync");
    return;
  }
  with_compute_type(axpby_compute(a), [&]<class C>() { launch_work<C>(stream, a, n); });
  cuda::check_launch(kName);
}

}  // namespace tessera
