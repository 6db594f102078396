#pragma once

/// Whether two results of a product have the same bits, without a copy of the first: a checksum of
/// all elements, computed by a GPU.

#include <cstdint>

#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"

namespace tessera::cuda {

/// Adds to *sum, in memory of the current GPU, a checksum of `batch` matrices at `data`: equal for
/// equal bits; for others equal by chance of about one in 2^64.
void add_checksum(CudaStream stream, const LtMatrix& matrix, std::int64_t batch, const void* data,
                  unsigned long long* sum);

}  // namespace tessera::cuda
