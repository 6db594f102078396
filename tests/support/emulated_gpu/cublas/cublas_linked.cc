// The table of cuBLASLt's functions, in place of tensor/kernels/cuda/cublas/cublas_library.cc: the
// stand-ins are linked into the program, so there is nothing to load.

#include "tessera/tensor/kernels/cuda/cublas/cublas_library.h"

namespace tessera::cuda {

const CublasLt& cublaslt(const char*) {
#define TESSERA_CUBLASLT_LINKED(name) .name = &::name,
  static constexpr CublasLt table = {TESSERA_CUBLASLT_FUNCTIONS(TESSERA_CUBLASLT_LINKED)};
  return table;
}

}  // namespace tessera::cuda
