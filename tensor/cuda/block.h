#pragma once

/// Operations of the threads of a block: shared memory and folds in a fixed order. For .cu files.
///
/// All threads of the block must call a fold, and their number is a multiple of 32. A fold is a
/// tree whose shape depends only on the number of threads, so equal inputs give equal bits.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

namespace tessera::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr int kWarpSize = 32;

/// The dynamic shared memory of the block, as T.
template <class T>
__device__ inline T* dynamic_shared() {
#if defined(TESSERA_EMULATED_GPU)
  return static_cast<T*>(emulated::dynamic_shared_memory());
#else
  extern __shared__ __align__(16) unsigned char tessera_shared_bytes[];
  return reinterpret_cast<T*>(tessera_shared_bytes);
#endif
}

/// Nanoseconds of the GPU's clock.
__device__ inline std::uint64_t nanoseconds_now() {
#if defined(TESSERA_EMULATED_GPU)
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u +
         static_cast<std::uint64_t>(now.tv_nsec);
#else
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#endif
}

/// The hardware's 2^x, off by about 2^-22 of the result; one below 2^-126 is 0. Without PTX the
/// compiler adds three instructions for small results.
__device__ inline float exp2_flushed(float x) {
#if defined(TESSERA_EMULATED_GPU)
  return ::exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

/// fold(a, b) over the lanes of each section of `kLanes` lanes (a power of 2); every lane gets the
/// result. T has at most 8 bytes and is a type that warp shuffles accept.
template <int kLanes = kWarpSize, class T, class Fold>
__device__ inline T warp_fold(T value, Fold fold) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    value = fold(value, __shfl_xor_sync(kWholeWarp, value, distance));
  return value;
}

/// fold(a, b) over all threads of the block; every thread gets the result. `nothing` is the neutral
/// element of fold. Has barriers at its begin and end, so calls may follow each other.
template <class T, class Fold>
__device__ inline T block_fold(T value, T nothing, Fold fold) {
  __shared__ T warps[kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize,
            count = static_cast<int>(blockDim.x) / kWarpSize;
  value = warp_fold(value, fold);
  __syncthreads();  // an earlier call may still be reading `warps`
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  return warp_fold(lane < count ? warps[lane] : nothing, fold);
}

}  // namespace tessera::cuda
