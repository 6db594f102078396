#pragma once

/// cuBLASLt, loaded by the first call of cublaslt(). A program that is linked with the library pays
/// 0.1 to 0.3 s for its relocations before every main(), also where there is no GPU.
///
/// Shows the library's header, for its types: for the .cc files beside it. They call its functions
/// by the table alone: `cublaslt().cublasLtMatmul(...)`.

#include <cublasLt.h>

#include "tessera/tensor/kernels/matmul.h"

/// Every function of the library that Tessera calls. A direct call of one is an undefined symbol
/// when a program is linked, and //tests/gpu:cublas_calls_test finds it.
///
/// The header's inline functions cublasLt...Init are calls of those named _internal, with the size
/// of what they fill.
#define TESSERA_CUBLASLT_FUNCTIONS(FUNCTION)      \
  FUNCTION(cublasLtCreate)                        \
  FUNCTION(cublasLtGetStatusName)                 \
  FUNCTION(cublasLtGetStatusString)               \
  FUNCTION(cublasLtMatmul)                        \
  FUNCTION(cublasLtMatmulAlgoGetHeuristic)        \
  FUNCTION(cublasLtMatmulDescInit_internal)       \
  FUNCTION(cublasLtMatmulDescSetAttribute)        \
  FUNCTION(cublasLtMatmulPreferenceInit_internal) \
  FUNCTION(cublasLtMatmulPreferenceSetAttribute)  \
  FUNCTION(cublasLtMatrixLayoutInit_internal)     \
  FUNCTION(cublasLtMatrixLayoutSetAttribute)

namespace tessera::cuda {

/// The functions, under the names that the library gives them.
struct CublasLt {
#define TESSERA_CUBLASLT_POINTER(name) decltype(&::name) name = nullptr;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_CUBLASLT_POINTER)
#undef TESSERA_CUBLASLT_POINTER
};

/// The table, the same for all threads. The first call loads the library, of the major version of
/// the header that this was compiled with, and throws DeviceError where that fails; a later call
/// then tries again. `where` stands in the error: the operation that needs it.
const CublasLt& cublaslt(const char* where = MatmulKernel::kName);

}  // namespace tessera::cuda
