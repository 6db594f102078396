#pragma once

/// cuBLASLt, loaded by the first call of cublaslt(). Linking it would cost every program 0.1 to 0.3
/// s for relocations before main(), even without a GPU.
///
/// Includes the library's header for its types: only for the .cc files of this folder. They call
/// its functions only through the table: `cublaslt().cublasLtMatmul(...)`.

#include <cublasLt.h>

#include "tessera/tensor/kernels/matmul.h"

/// Every function of the library that Tessera calls. A direct call is an undefined symbol when a
/// program is linked; //tests/gpu:cublas_calls_test finds it.
///
/// The header's inline functions cublasLt...Init call the functions named _internal, with the size
/// of the object that they initialise.
#define TESSERA_CUBLASLT_FUNCTIONS(FUNCTION)      \
  FUNCTION(cublasLtCreate)                        \
  FUNCTION(cublasLtGetStatusName)                 \
  FUNCTION(cublasLtGetStatusString)               \
  FUNCTION(cublasLtMatmul)                        \
  FUNCTION(cublasLtMatmulAlgoConfigGetAttribute)  \
  FUNCTION(cublasLtMatmulAlgoGetHeuristic)        \
  FUNCTION(cublasLtMatmulDescInit_internal)       \
  FUNCTION(cublasLtMatmulDescSetAttribute)        \
  FUNCTION(cublasLtMatmulPreferenceInit_internal) \
  FUNCTION(cublasLtMatmulPreferenceSetAttribute)  \
  FUNCTION(cublasLtMatrixLayoutInit_internal)     \
  FUNCTION(cublasLtMatrixLayoutSetAttribute)

namespace tessera::cuda {

/// The functions, under the library's names.
struct CublasLt {
#define TESSERA_CUBLASLT_POINTER(name) decltype(&::name) name = nullptr;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_CUBLASLT_POINTER)
#undef TESSERA_CUBLASLT_POINTER
};

/// The table, shared by all threads. The first call loads the library, of the same major version as
/// the header, and throws DeviceError if that fails; a later call then tries again. `where` is the
/// operation that needs it, for the error.
const CublasLt& cublaslt(const char* where = MatmulKernel::kName);

}  // namespace tessera::cuda
