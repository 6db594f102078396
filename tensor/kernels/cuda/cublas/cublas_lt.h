#pragma once

/// Calls of cuBLASLt. No header shows the library.
///
/// One handle for each GPU, made by the first product there and kept; so that product may not be
/// the one that a CUDA graph captures. Algorithms are the library's first proposal that fits the
/// workspace and keeps sums in one order and in f32 (f64): work that is cut along the inner dim
/// leaves partial results in the workspace, which a second step adds; the schemes that add in the
/// result itself, or round partial results to its dtype, are excluded. A proposal is kept for its
/// product, alignment of addresses and workspace. Any thread may call.

#include <cstddef>
#include <string>

#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"

namespace tessera::cuda {

/// Where the operands of one call are, in memory of the current GPU.
struct LtOperands {
  const void* first = nullptr;
  const void* second = nullptr;
  void* result = nullptr;
  const void* bias = nullptr;  ///< where the epilogue has one; aligned to kEpilogueAlignment
  void* aux = nullptr;         ///< likewise
  double alpha = 1;
  double beta = 0;  ///< where it is 0 `result` is not read
};

/// Issues the product on `stream` of the current GPU, with `workspace` for the library. False, and
/// nothing is issued, where the library has no algorithm for it. Throws DeviceError, or
/// OutOfMemory, for what the library reports.
bool try_product(CudaStream stream, const LtProduct& product, const LtOperands& operands,
                 Workspace workspace);
/// The same; throws DeviceError where the library has no algorithm.
void run_product(CudaStream stream, const LtProduct& product, const LtOperands& operands,
                 Workspace workspace);

/// What is said where there is none.
std::string no_algorithm_text(const LtProduct& product);

/// Nothing for CUBLAS_STATUS_SUCCESS. Else throws OutOfMemory or DeviceError with the status's name
/// and text; `what` is the call that failed.
void check_cublas(int status, const char* where, const char* what);

}  // namespace tessera::cuda
