#pragma once

/// The exported function of each instruction set's shared object. `run` distributes work over the threads of the
/// process.

#include "tessera/tensor/kernels/pieces.h"
#include "tessera/tensor/kernels/table.h"

extern "C" {
/// Kernels built for x86-64-v3. Call it only on a CPU that supports it.
__attribute__((visibility("default"))) const tessera::CpuTable* tessera_cpu_kernels_v3(
    tessera::RunPieces run);
/// The same for x86-64-v4 (AVX-512).
__attribute__((visibility("default"))) const tessera::CpuTable* tessera_cpu_kernels_v4(
    tessera::RunPieces run);
}
