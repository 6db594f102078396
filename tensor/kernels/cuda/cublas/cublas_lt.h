#pragma once

/// Calls of cuBLASLt. This header does not include the library's.
///
/// Each GPU has one handle, made by the first product there and kept; that product must not be
/// captured into a CUDA graph. An algorithm fits the workspace and adds in one order and in f32
/// (f64 for f64): split-K algorithms may store partial results in the workspace and add them in a
/// second step. Reduction schemes that add into the result itself, or round partial results to its
/// dtype, are excluded. The result has the bits of the library's first such proposal; large
/// products take the fastest one with these bits, measured by the first call that does not add to
/// its result and is not captured: that call waits for the stream. Choices are kept by product,
/// alignment of addresses and workspace. Thread-safe.

#include <cstddef>
#include <string>

#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"

namespace tessera::cuda {

/// The addresses of one call's operands, in memory of the current GPU.
struct LtOperands {
  const void* first = nullptr;
  const void* second = nullptr;
  void* result = nullptr;
  const void* bias = nullptr;  ///< if the epilogue has one; aligned to kEpilogueAlignment
  void* aux = nullptr;         ///< likewise
  double alpha = 1;
  double beta = 0;  ///< 0: `result` is not read
};

/// Issues the product on `stream` of the current GPU, with `workspace` for the library. Returns
/// false, and issues nothing, if the library has no algorithm for it. Throws DeviceError or
/// OutOfMemory for errors of the library.
bool try_product(CudaStream stream, const LtProduct& product, const LtOperands& operands,
                 Workspace workspace);
/// The same; throws DeviceError if the library has no algorithm.
void run_product(CudaStream stream, const LtProduct& product, const LtOperands& operands,
                 Workspace workspace);

/// The error message if there is no algorithm.
std::string no_algorithm_text(const LtProduct& product);

/// Returns for CUBLAS_STATUS_SUCCESS. Else throws OutOfMemory or DeviceError with the status's name
/// and text; `what` is the call that failed.
void check_cublas(int status, const char* where, const char* what);

}  // namespace tessera::cuda
