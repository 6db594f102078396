#include <cstdint>
#include <type_traits>

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/kernels/convert_element.h"
#include "tessera/tensor/kernels/cuda/elements.h"
#include "tessera/tensor/kernels/cuda/thread_place.h"
#include "tessera/tensor/kernels/cuda/walk.h"
#include "tessera/tensor/kernels/types.h"
#include "tessera/tensor/kernels/unary.h"

namespace tessera {
namespace {

using cuda::blocks_for;
using cuda::kThreads;
using cuda::thread_count;
using cuda::thread_index;

template <class T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};

// 16 bytes at a time; the last, incomplete pack goes through the same functor, one by one.
template <class T, class C, class F>
__global__ void contiguous_kernel(const T* x, T* y, std::int64_t n, F f) {
  constexpr int kCount = Pack<T>::kCount;
  const auto apply = [&](T value) { return convert_element<T>(f(convert_element<C>(value))); };
  const std::int64_t packs = n / kCount;
  cuda::share(thread_index(), thread_count(), packs, [&](std::int64_t p) {
    Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[p];
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.values[i] = apply(pack.values[i]);
    reinterpret_cast<Pack<T>*>(y)[p] = pack;
  });
  cuda::share(packs * kCount + thread_index(), thread_count(), n,
              [&](std::int64_t i) { y[i] = apply(x[i]); });
}

// Any layout and any two dtypes: all threads of a launch take the same branches.
template <class C, class F>
__global__ void strided_kernel(const void* x, DType x_dtype, void* y, DType y_dtype, std::int64_t n,
                               const __grid_constant__ cuda::Walk walk, F f) {
  cuda::share(thread_index(), thread_count(), n, [&](std::int64_t i) {
    const cuda::WalkOffsets at = cuda::offsets_at(walk, i);
    const C result = f(cuda::load_element<C>(x, x_dtype, at.x));
    cuda::store_element<C>(y, y_dtype, at.y, result);
  });
}

bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

// The operation has merged dims, so what is contiguous has one dim.
bool takes_packs(const UnaryKernel::Args& a) {
  const bool in_order = a.y.shape.ndim() == 0 ||
                        (a.y.shape.ndim() == 1 && a.x.strides[0] == 1 && a.y.strides[0] == 1);
  return in_order && is_floating(a.x.dtype) && a.x.dtype == a.y.dtype && is_aligned(a.x.data) &&
         is_aligned(a.y.data);
}

template <class C, class F>
void apply(CudaStream stream, const UnaryKernel::Args& a, std::int64_t n, F f) {
  if (!takes_packs(a)) {
    strided_kernel<C><<<blocks_for(n), kThreads, 0, stream>>>(
        a.x.data, a.x.dtype, a.y.data, a.y.dtype, n,
        cuda::make_walk(a.y.shape, a.x.strides, a.y.strides), f);
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
  cuda::check_launch(kName);
}

}  // namespace tessera
