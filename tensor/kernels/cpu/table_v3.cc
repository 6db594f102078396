#include "tessera/tensor/kernels/cpu/entry.h"
#include "tessera/tensor/kernels/cpu/parallel.h"

const tessera::CpuTable* tessera_cpu_kernels_v3(tessera::RunPieces run) {
  tessera::cpu::process_run_pieces = run;
  static const tessera::CpuTable table = tessera::CpuTableOf<tessera::AllKernels>::make();
  return &table;
}
