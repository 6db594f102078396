#pragma once

/// Marks functions that are compiled for the CPU and the GPU.

#if defined(__CUDACC__)
#define TESSERA_HD __host__ __device__ __forceinline__
#else
#define TESSERA_HD inline __attribute__((always_inline))
#endif

/// Before a loop: do not unroll it on a GPU. For long bodies that run few times.
#if defined(__CUDA_ARCH__)
#define TESSERA_KEEP_LOOP _Pragma("unroll 1")
#else
#define TESSERA_KEEP_LOOP
#endif
