#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "tessera/tensor/error.h"
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
template <class T, class F>
__global__ void contiguous_kernel(const T* x, T* y, std::int64_t n, F f) {
  constexpr int kCount = Pack<T>::kCount;
  const std::int64_t packs = n / kCount;
  for (std::int64_t p = first_index(); p < packs; p += index_step()) {
    Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[p];
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.values[i] = f(pack.values[i]);
    reinterpret_cast<Pack<T>*>(y)[p] = pack;
  }
  for (std::int64_t i = packs * kCount + first_index(); i < n; i += index_step()) y[i] = f(x[i]);
}

struct Layout {
  int ndim;
  std::int64_t shape[kMaxDims];
  std::int64_t x_strides[kMaxDims];
  std::int64_t y_strides[kMaxDims];
};

template <class T, class F>
__global__ void strided_kernel(const T* x, T* y, std::int64_t n, Layout layout, F f) {
  for (std::int64_t i = first_index(); i < n; i += index_step()) {
    std::int64_t rest = i, from = 0, to = 0;
    for (int d = layout.ndim - 1; d >= 0; --d) {
      const std::int64_t index = rest % layout.shape[d];
      rest /= layout.shape[d];
      from += index * layout.x_strides[d];
      to += index * layout.y_strides[d];
    }
    y[to] = f(x[from]);
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
  return in_order && is_aligned(a.x.data) && is_aligned(a.y.data);
}

template <class T, class F>
void apply(CudaStream stream, const UnaryKernel::Args& a, std::int64_t n, F f) {
  const bool packs = takes_packs(a);
  const std::int64_t work = packs ? (n + Pack<T>::kCount - 1) / Pack<T>::kCount : n;
  const auto blocks =
      static_cast<unsigned>(std::min(kMostBlocks, (work + kThreads - 1) / kThreads));
  if (packs) {
    contiguous_kernel<<<blocks, kThreads, 0, stream>>>(a.x.as<T>(), a.y.as<T>(), n, f);
  } else {
    strided_kernel<<<blocks, kThreads, 0, stream>>>(a.x.as<T>(), a.y.as<T>(), n, layout_of(a), f);
  }
}

}  // namespace

void UnaryKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  std::int64_t n = 1;
  for (std::int64_t extent : a.y.shape) n *= extent;
  if (n == 0) return;
  with_floating_type(a.y.dtype, [&]<class T>() {
    with_functor(a.op, [&](auto f) { apply<T>(stream, a, n, f); });
  });
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw DeviceError(std::string("[unary] CUDA could not launch the kernel: ") +
                      cudaGetErrorString(error));
  }
}

}  // namespace tessera
