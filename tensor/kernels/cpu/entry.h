#pragma once

/// The exported function of each instruction set's shared object.

#include "tessera/tensor/kernels/table.h"

extern "C" {
/// Kernels built for x86-64-v3. Call it only on a CPU that supports it.
__attribute__((visibility("default"))) const tessera::CpuTable* tessera_cpu_kernels_v3();
/// The same for x86-64-v4 (AVX-512).
__attribute__((visibility("default"))) const tessera::CpuTable* tessera_cpu_kernels_v4();
}
