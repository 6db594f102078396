#pragma once

/// What the shared object of each instruction set exports.

#include "tessera/tensor/kernels/table.h"

extern "C" {
/// Kernels built for x86-64-v3. Call it only on a CPU that has it.
__attribute__((visibility("default"))) const tessera::CpuTable* tessera_cpu_kernels_v3();
/// The same for x86-64-v4, which is AVX-512.
__attribute__((visibility("default"))) const tessera::CpuTable* tessera_cpu_kernels_v4();
}
