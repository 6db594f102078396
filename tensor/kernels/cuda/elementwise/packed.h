#pragma once

/// Elementwise kernels for the operations on which training spends its time: 16-bit elements, or
/// 16-bit and f32, of contiguous operands. Functor and dtypes are template parameters, and a thread reads 8 elements of
/// each operand at a time, twice; all other launches go through map.h. For .cu files.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tessera/tensor/kernels/cuda/elementwise/elements.h"
#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/thread_place.h"
#include "tessera/tensor/kernels/layout.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cuda {

inline constexpr int kPackedRun = 8;   ///< elements in one access, or two of f32
inline constexpr int kPackedEach = 2;  ///< runs of a thread

template <int N>
struct PackedWork {
  const void* in[N];
  void* y = nullptr;
  std::int64_t numel = 0;
};

/// Whether operands of y's shape are contiguous and begin at multiples of 16 bytes.
template <class... Views>
bool is_packed(const View& y, const Views&... in) {
  const auto fits = [&](const auto& x) {
    return x.defined() && is_contiguous(y.shape, x.strides) && is_pack_aligned(x.data);
  };
  return fits(y) && (fits(in) && ...);
}

namespace detail {

template <class T>
__device__ __forceinline__ void load_packed(const void* data, std::int64_t run,
                                            float (&out)[kPackedRun]) {
  const auto loaded = static_cast<const Run<T, kPackedRun>*>(data)[run];
#pragma unroll
  for (int k = 0; k < kPackedRun; ++k) out[k] = static_cast<float>(loaded.values[k]);
}

template <class Y, class... X, class F, std::size_t... I>
__device__ __forceinline__ void map_packed(const PackedWork<sizeof...(X)>& work, const F& f,
                                           std::index_sequence<I...>) {
  const std::int64_t runs = work.numel / kPackedRun;
  const std::int64_t first = std::int64_t{blockIdx.x} * (kThreads * kPackedEach) + threadIdx.x;
  float in[sizeof...(X)][kPackedEach][kPackedRun];
#pragma unroll
  for (int e = 0; e < kPackedEach; ++e) {
    const std::int64_t run = first + e * kThreads;
    if (run < runs) (load_packed<X>(work.in[I], run, in[I][e]), ...);
  }
#pragma unroll
  for (int e = 0; e < kPackedEach; ++e) {
    const std::int64_t run = first + e * kThreads;
    if (run >= runs) continue;
    Run<Y, kPackedRun> out;
#pragma unroll
    for (int k = 0; k < kPackedRun; ++k) out.values[k] = convert_element<Y>(f(in[I][e][k]...));
    static_cast<Run<Y, kPackedRun>*>(work.y)[run] = out;
  }
  // The elements after the last run.
  const std::int64_t rest = runs * kPackedRun + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && rest < work.numel) {
    static_cast<Y*>(work.y)[rest] =
        convert_element<Y>(f(static_cast<float>(static_cast<const X*>(work.in[I])[rest])...));
  }
}

}  // namespace detail

template <class Y, class F, class... X>
__global__ void __launch_bounds__(kThreads)
    packed_kernel(const __grid_constant__ PackedWork<sizeof...(X)> work, F f) {
  detail::map_packed<Y, X...>(work, f, std::make_index_sequence<sizeof...(X)>());
}

/// y = f(in...), for operands that are packed (is_packed) and have the dtypes X... and Y. Each thread
/// reads its elements before it writes them: y may be one of the inputs.
template <class Y, class... X, class F, class... Views>
void start_packed(const char* name, CudaStream stream, const F& f, const View& y,
                  const Views&... in) {
  const PackedWork<sizeof...(X)> work = {.in = {in.data...}, .y = y.data, .numel = y.numel()};
  const std::int64_t runs = pieces_of(work.numel, kPackedRun);
  const auto blocks = static_cast<unsigned>(pieces_of(runs, kThreads * kPackedEach));
  start(name, packed_kernel<Y, F, X...>, {.blocks = blocks, .threads = kThreads}, stream, work, f);
}

/// body.template operator()<T>() for a 16-bit dtype; returns false for another.
template <class Body>
bool with_16_bits(DType dtype, const Body& body) {
  if (dtype == DType::kBF16) {
    body.template operator()<BFloat16>();
    return true;
  }
  if (dtype == DType::kF16) {
    body.template operator()<Float16>();
    return true;
  }
  return false;
}

/// For results of 16 bits of f32 numbers. The sigmoid of math/ is off by about one unit in the last
/// place of f32; this one, with the hardware's 2^x and reciprocal, by about 2^-22 (1 + |x|) of the
/// result, and a result below 2^-126 may become 0: after rounding, mostly the same.
struct FastSigmoid {
  TESSERA_HD float operator()(float x) const {
    const float e = ::exp2f(-1.44269504f * x);
#ifdef __CUDA_ARCH__
    return __fdividef(1.0f, 1.0f + e);
#else
    return 1.0f / (1.0f + e);
#endif
  }
};

}  // namespace tessera::cuda
