#include "tessera/tensor/kernels/cuda/windows/plain.h"

#include <algorithm>

#include "tessera/tensor/cuda/block.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/cuda/windows/conv_element.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

using cuda::ConvWork;

template <class C>
__global__ void output_kernel(const __grid_constant__ ConvWork work, void* y, std::int64_t n) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), n, [&](std::int64_t i) {
    cuda::store_element<C>(y, work.dtype, i, cuda::conv_output<C>(work, i));
  });
}

template <class C>
__global__ void input_gradient_kernel(const __grid_constant__ ConvWork work, void* dx,
                                      std::int64_t n) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), n, [&](std::int64_t i) {
    cuda::store_element<C>(dx, work.dtype, i, cuda::conv_input_gradient<C>(work, i));
  });
}

// One block per element, whose sum is a tree over all positions.
template <class C>
__global__ void weight_gradient_kernel(const __grid_constant__ ConvWork work, void* dweight,
                                       std::int64_t n, C beta) {
  const std::int64_t positions = work.images * work.h.out * work.w.out;
  for (std::int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    C sum{0};
    cuda::share(threadIdx.x, blockDim.x, positions,
                [&](std::int64_t p) { sum = cuda::conv_weight_term<C>(work, i, p, sum); });
    sum = cuda::block_fold(sum, C{0}, [](C a, C b) { return a + b; });
    if (threadIdx.x != 0) continue;
    if (beta != C{0}) {
      sum = scalar::fma(beta, cuda::load_element<C>(dweight, work.dtype, i), sum);
    }
    cuda::store_element<C>(dweight, work.dtype, i, sum);
  }
}

template <class C>
__global__ void bias_kernel(void* y, const void* bias, DType dtype, std::int64_t channels,
                            std::int64_t outputs, std::int64_t n) {
  cuda::share(cuda::thread_index(), cuda::thread_count(), n, [&](std::int64_t i) {
    const C value = cuda::load_element<C>(bias, dtype, i / outputs % channels);
    cuda::store_element<C>(y, dtype, i, cuda::load_element<C>(y, dtype, i) + value);
  });
}

ConvWork work_of(const ConvGeometry& g, DType dtype) {
  ConvWork work;
  work.images = g.images;
  work.groups = g.groups;
  work.in_channels = g.in_channels;
  work.out_channels = g.out_channels;
  work.h = cuda::axis_view(g.h);
  work.w = cuda::axis_view(g.w);
  work.dtype = dtype;
  return work;
}

}  // namespace

void cuda::plain_conv(CudaStream stream, const ConvKernel::Args& a) {
  const std::int64_t n = a.y.numel();
  if (n == 0) return;
  ConvWork work = work_of(a.g, a.weight.dtype);
  work.x = image_view(a.x);
  work.weight = a.weight.data;
  work.bias = a.bias.defined() ? a.bias.data : nullptr;
  with_floating_type(a.g.compute, [&]<class C>() {
    start(ConvKernel::kName, output_kernel<C>, grid_for(n), stream, work, a.y.data, n);
  });
}

void cuda::plain_conv(CudaStream stream, const ConvBackwardInputKernel::Args& a) {
  const std::int64_t n = a.dx.numel();
  if (n == 0) return;
  ConvWork work = work_of(a.g, a.weight.dtype);
  work.y = image_view(a.dy);
  work.weight = a.weight.data;
  with_floating_type(a.g.compute, [&]<class C>() {
    start(ConvBackwardInputKernel::kName, input_gradient_kernel<C>, grid_for(n), stream, work,
          a.dx.data, n);
  });
}

void cuda::plain_conv(CudaStream stream, const ConvBackwardWeightKernel::Args& a) {
  const std::int64_t n = a.dweight.numel();
  if (n == 0) return;
  ConvWork work = work_of(a.g, a.dweight.dtype);
  work.x = image_view(a.x);
  work.y = image_view(a.dy);
  const Grid grid{.blocks = static_cast<unsigned>(std::min<std::int64_t>(n, 0x7fffffff)),
                  .threads = kThreads};
  with_floating_type(a.g.compute, [&]<class C>() {
    start(ConvBackwardWeightKernel::kName, weight_gradient_kernel<C>, grid, stream, work,
          a.dweight.data, n, static_cast<C>(a.beta));
  });
}

void cuda::add_conv_bias(CudaStream stream, const ConvKernel::Args& a) {
  const std::int64_t n = a.y.numel();
  if (n == 0) return;
  with_floating_type(a.g.compute, [&]<class C>() {
    start(ConvKernel::kName, bias_kernel<C>, grid_for(n), stream, a.y.data, a.bias.data, a.y.dtype,
          a.g.groups * a.g.out_channels, a.g.outputs(), n);
  });
}

}  // namespace tessera
