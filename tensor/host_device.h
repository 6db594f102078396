#pragma once

/// Marks functions that are compiled for the CPU and for the GPU.

#if defined(__CUDACC__)
#define TESSERA_HD __host__ __device__ __forceinline__
#else
#define TESSERA_HD inline __attribute__((always_inline))
#endif

/// Before a loop: not unrolled on a GPU, where few rounds are expected and the code is long.
#if defined(__CUDA_ARCH__)
#define TESSERA_KEEP_LOOP _Pragma("unroll 1")
#else
#define TESSERA_KEEP_LOOP
#endif
