#include "tessera/tensor/kernels/cpu/entry.h"

const tessera::CpuTable* tessera_cpu_kernels_v4() {
  static const tessera::CpuTable table = tessera::CpuTableOf<tessera::AllKernels>::make();
  return &table;
}
