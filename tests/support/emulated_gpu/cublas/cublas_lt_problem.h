#pragma once

/// One matrix product as cublasLtMatmul's descriptors describe it, and whether the library's
/// documentation allows it: D = epilogue(alpha * op(A) * op(B) + beta * C), column-major.
///
/// Emulated is what Tessera uses: real f32, f64, bf16 and f16 in column-major order, strided
/// batches, alpha and beta on the host, bias and GELU. The rest of the library is refused. A run may have epilogues refused that share a bit with the number in
/// TESSERA_EMULATED_CUBLAS_REFUSED_EPILOGUES (32: all of GELU), so that what callers do without
/// them is tested.

#include <cstdint>
#include <string>

#include "tessera/tests/support/emulated_gpu/cublas/cublas_lt_descriptors.h"

namespace tessera::emulated::cublas {

/// What a check found; `why` is for stderr.
struct Verdict {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  std::string why;
  bool ok() const { return status == CUBLAS_STATUS_SUCCESS; }
};

struct Layouts {
  cublasLtMatrixLayout_t a, b, c, d;  // c null: as d
};

/// The descriptors' contents at the time of the call.
struct Problem {
  MatmulDesc op;
  MatrixLayout a, b, c, d;
  std::int64_t m = 0, n = 0, k = 0;
  int batch = 1;
};
struct ReadProblem {
  Problem problem;
  Verdict verdict;
};
/// Everything but addresses and the algorithm: types, shapes, leading dimensions, batches,
/// epilogue.
ReadProblem read_problem(cublasLtMatmulDesc_t op, const Layouts& layouts);

/// What an epilogue does to the product: it adds the bias, keeps the sum in the auxiliary matrix,
/// applies GELU. The bias, one number for each row of D, and the auxiliary matrix have D's type.
struct Epilogue {
  bool bias = false, aux = false, gelu = false;
};
Epilogue epilogue_of(std::uint32_t value);

/// Bytes of an element; 0 for types that are not emulated.
std::size_t size_of(std::uint32_t type);

/// Bytes from a matrix's first element to the end of its last, over all batches.
std::size_t extent_bytes(const MatrixLayout& layout);

/// Whether products are computed in f64, else in f32.
bool in_f64(const Problem& problem);

}  // namespace tessera::emulated::cublas
