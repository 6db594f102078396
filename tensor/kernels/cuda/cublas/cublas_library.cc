#include "tessera/tensor/kernels/cuda/cublas/cublas_library.h"

#include "tessera/tensor/kernels/cuda/loaded_library.h"

namespace tessera::cuda {
namespace {

#define TESSERA_TEXT(tokens) #tokens
#define TESSERA_TEXT_OF(macro) TESSERA_TEXT(macro)
#define TESSERA_CUBLAS_MAJOR TESSERA_TEXT_OF(CUBLAS_VER_MAJOR)

CublasLt load(const char* where) {
  const LoadedLibrary library(where, "libcublasLt.so." TESSERA_CUBLAS_MAJOR,
                              "install cuBLAS " TESSERA_CUBLAS_MAJOR
                              " or set LD_LIBRARY_PATH to the folder that holds it");
  CublasLt table;
#define TESSERA_CUBLASLT_FIND(name) library.find(#name, table.name);
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_CUBLASLT_FIND)
  return table;
}

}  // namespace

const CublasLt& cublaslt(const char* where) {
  static const CublasLt table = load(where);
  return table;
}

}  // namespace tessera::cuda
