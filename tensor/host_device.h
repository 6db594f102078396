#pragma once

/// Marks functions that are compiled for the CPU and for the GPU.

#if defined(__CUDACC__)
#define TESSERA_HD __host__ __device__ __forceinline__
#else
#define TESSERA_HD inline __attribute__((always_inline))
#endif
