#pragma once

/// The product of a plan as cuBLASLt descriptors. Includes the library's header: only for the .cc
/// files of this folder. All functions throw as check_cublas.

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/tensor/kernels/cuda/cublas/cublas_lt.h"
#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"

namespace tessera::cuda {

using LtLayout = cublasLtMatrixLayoutOpaque_t;

/// The layout of a matrix, or of `batch` matrices.
LtLayout layout_of(const LtMatrix& matrix, std::int64_t batch);

/// Everything that the choice of an algorithm depends on.
struct LtKey {
  LtProduct product;
  std::array<std::uint32_t, 5> alignment;  ///< in bytes: of first, second, result, bias, aux
  std::size_t workspace;
  bool operator==(const LtKey&) const = default;
};
LtKey key_of(const LtProduct& product, const LtOperands& operands, Workspace workspace);

/// The operation without layouts. Holds addresses, so it is made for each call, on the stack.
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

/// An algorithm for a product, ready for calls. Immutable: all threads may use it.
struct LtAlgorithm {
  LtLayout first, second, result;
  cublasLtMatmulAlgo_t algorithm;
};

/// The number of algorithms that the library may propose, and their kind: `reductions` are bits of
/// cublasLtReductionScheme_t.
struct LtSearch {
  int most = 1;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
};
/// The algorithms that fit the workspace, in the library's order, best first; may be empty.
std::vector<LtAlgorithm> propose(cublasLtHandle_t handle, const LtKey& key, LtOperation& operation,
                                 const LtSearch& search);

/// The number of parts into which an algorithm splits the inner dim; 1: none.
int splits_of(const LtAlgorithm& algorithm);

void multiply(cublasLtHandle_t handle, CudaStream stream, const LtAlgorithm& algorithm,
              LtOperation& operation, const LtOperands& operands, Workspace workspace);

/// The handle of the current GPU.
cublasLtHandle_t current_handle();

}  // namespace tessera::cuda
