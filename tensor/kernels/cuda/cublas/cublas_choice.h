#pragma once

/// The choice among the algorithms that cuBLASLt proposes for a product. The library's own order is
/// up to a quarter slower than the best of its proposals, so large products are measured when they
/// first run. The choice must not change results: only algorithms take part that split the inner
/// dim as the library's first proposal does, and whose result has the same bits. Includes the library's header: only for the .cc files of this folder.

#include <span>
#include <vector>

#include "tessera/tensor/kernels/cuda/cublas/cublas_descriptors.h"

namespace tessera::cuda {

/// Whether measuring can pay: a product of some ten microseconds on a large GPU.
bool worth_measuring(const LtProduct& product);

/// What was measured of a proposal.
struct MeasuredAlgorithm {
  double us = 0;               ///< of the fastest run
  int splits = 1;              ///< of the inner dim
  std::uint64_t checksum = 0;  ///< of the result
};
/// The fastest with the splits and the checksum of the first; the first unless another is at least a
/// tenth faster.
std::size_t fastest_equal(std::span<const MeasuredAlgorithm> all);

/// Runs each algorithm some times and returns the index of fastest_equal. `operands.beta` is 0: the
/// last run leaves the result as one product does. Returns 0, and runs nothing, while the stream is
/// captured, or without a workspace of 8 bytes. Waits for the stream.
std::size_t measure_algorithms(cublasLtHandle_t handle, CudaStream stream,
                               const std::vector<LtAlgorithm>& all, const LtProduct& product,
                               LtOperation& operation, const LtOperands& operands,
                               Workspace workspace);

}  // namespace tessera::cuda
