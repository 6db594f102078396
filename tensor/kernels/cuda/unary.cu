#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/convert_element.h"
#include "tessera/tensor/kernels/types.h"
#include "tessera/tensor/kernels/unary.h"

namespace tessera {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks =
    4096;  // enough to fill any GPU; the rest is the stride of the grid

template <class T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};

__device__ std::int64_t first_index() {
  return blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
}
__device__ std::int64_t index_step() { return gridDim.x * std::int64_t{blockDim.x}; }

// 16 bytes at a time; the last, incomplete pack goes through the same functor, one by one.
template <class T, class C, class F>
__global__ void contiguous_kernel(const T* x, T* y, std::int64_t n, F f) {
  constexpr int kCount = Pack<T>::kCount;
  const auto apply = [&](T value) { return convert_element<T>(f(convert_element<C>(value))); };
  const std::int64_t packs = n / kCount;
  for (std::int64_t p = first_index(); p < packs; p += index_step()) {
    Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[p];
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.values[i] = apply(pack.values[i]);
    reinterpret_cast<Pack<T>*>(y)[p] = pack;
  }
  for (std::int64_t i = packs * kCount + first_index(); i < n; i += index_step())
    y[i] = apply(x[i]);
}

struct Layout {
  int ndim;
  std::int64_t shape[kMaxDims];
  std::int64_t x_strides[kMaxDims];
  std::int64_t y_strides[kMaxDims];
};

// Any layout and any two dtypes: all threads of a launch take the same branches.
template <class C, class F>
__global__ void strided_kernel(const void* x, DType x_dtype, void* y, DType y_dtype, std::int64_t n,
                               Layout layout, F f) {
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    std::int64_t rest = i, from = 0, to = 0;
    for (int d = layout.ndim - 1; d >= 0; --d) {
      const std::int64_t index = rest % layout.shape[d];
      rest /= layout.shape[d];
      from += index * layout.x_strides[d];
      to += index * layout.y_strides[d];
    }
    C value{};
    with_type(x_dtype,
              [&]<class T>() { value = convert_element<C>(static_cast<const T*>(x)[from]); });
    const C result = f(value);
    with_type(y_dtype, [&]<class T>() { static_cast<T*>(y)[to] = convert_element<T>(result); });
  }
}

Layout layout_of(const UnaryKernel::Args& a) {
  Layout layout{};
  layout.ndim = a.y.shape.ndim();
  std::copy(a.y.shape.begin(), a.y.shape.end(), layout.shape);
  std::copy(a.x.strides.begin(), a.x.strides.end(), layout.x_strides);
  std::copy(a.y.strides.begin(), a.y.strides.end(), layout.y_strides);
  return layout;
}

bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

// The operation has merged dims, so what is contiguous has one dim.
bool takes_packs(const UnaryKernel::Args& a) {
  const bool in_order = a.y.shape.ndim() == 0 ||
                        (a.y.shape.ndim() == 1 && a.x.strides[0] == 1 && a.y.strides[0] == 1);
  return in_order && is_floating(a.x.dtype) && a.x.dtype == a.y.dtype && is_aligned(a.x.data) &&
         is_aligned(a.y.data);
}

unsigned blocks_for(std::int64_t work) {
  return static_cast<unsigned>(std::min(kMostBlocks, (work + kThreads - 1) / kThreads));
}

template <class C, class F>
void apply(CudaStream stream, const UnaryKernel::Args& a, std::int64_t n, F f) {
  if (!takes_packs(a)) {
    strided_kernel<C><<<blocks_for(n), kThreads, 0, stream>>>(a.x.data, a.x.dtype, a.y.data,
                                                              a.y.dtype, n, layout_of(a), f);
    return;
  }
  with_type(a.y.dtype, [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>) &&
                  std::is_same_v<C, double> == std::is_same_v<T, double>) {
      contiguous_kernel<T, C><<<blocks_for(n / Pack<T>::kCount + 1), kThreads, 0, stream>>>(
          a.x.as<T>(), a.y.as<T>(), n, f);
    }
  });
}

}  // namespace

void UnaryKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  std::int64_t n = 1;
  for (std::int64_t extent : a.y.shape) n *= extent;
  if (n == 0) return;
  with_compute_type(a.compute, [&]<class C>() {
    with_functor<functors::Unary>(a.op, [&]<class F>(F f) {
      if constexpr (kTakes<F, C, 1>) apply<C>(stream, a, n, f);
    });
  });
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw DeviceError(std::string("[unary] CUDA could not launch the kernel: ") +
                      cudaGetErrorString(error));
  }
}

}  // namespace tessera
