#pragma once

/// A plan's product as the descriptors of cuBLASLt. Shows the library's header: for the .cc files
/// beside it. All throw as check_cublas.

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/tensor/kernels/cuda/cublas/cublas_lt.h"
#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"

namespace tessera::cuda {

using LtLayout = cublasLtMatrixLayoutOpaque_t;

/// Of a matrix, or of `batch` of them.
LtLayout layout_of(const LtMatrix& matrix, std::int64_t batch);

/// Everything that an algorithm is chosen by.
struct LtKey {
  LtProduct product;
  std::array<std::uint32_t, 5> alignment;  ///< in bytes: of first, second, result, bias, aux
  std::size_t workspace;
  bool operator==(const LtKey&) const = default;
};
LtKey key_of(const LtProduct& product, const LtOperands& operands, Workspace workspace);

/// What is computed, apart from layouts. Holds addresses, so it is made for each call, on the
/// stack.
class LtOperation {
 public:
  LtOperation(const LtProduct& product, const LtOperands& operands);
  cublasLtMatmulDesc_t get() { return &desc_; }
  bool in_f64() const { return in_f64_; }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value);
  cublasLtMatmulDescOpaque_t desc_;
  bool in_f64_;
};

/// An algorithm for a product, ready for calls. Nothing in it changes: all threads may use it.
struct LtAlgorithm {
  LtLayout first, second, result;
  cublasLtMatmulAlgo_t algorithm;
};

/// How many algorithms the library may propose, and which: `reductions` are bits of
/// cublasLtReductionScheme_t.
struct LtSearch {
  int most = 1;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
};
/// Those that fit the workspace, the best first as the library sees it; may be empty.
std::vector<LtAlgorithm> propose(cublasLtHandle_t handle, const LtKey& key, LtOperation& operation,
                                 const LtSearch& search);

void multiply(cublasLtHandle_t handle, CudaStream stream, const LtAlgorithm& algorithm,
              LtOperation& operation, const LtOperands& operands, Workspace workspace);

/// The handle of the current GPU.
cublasLtHandle_t current_handle();

}  // namespace tessera::cuda
