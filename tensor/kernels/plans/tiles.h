#pragma once

/// Scratch of kernels that consist of tile products: attention and convolution.

#include <cstddef>
#include <cstdint>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/kernels/matmul.h"

namespace tessera {

/// `n` rounded up to whole cache lines of the narrowest compute type: the pitch of rows of scratch.
constexpr std::int64_t padded(std::int64_t n) { return (n + 15) / 16 * 16; }

/// Bytes in which cpu::multiply packs its operands, for tiles of at most m x n with an inner extent
/// of at most k, computed in `compute`; the same as the library part of MatmulKernel::scratch.
constexpr std::size_t product_scratch(DType compute, std::int64_t m, std::int64_t n,
                                      std::int64_t k) {
  const std::int64_t elements = compute == DType::kF64 ? (m + n) * MatmulKernel::kEigenDepth + 8
                                                       : (m + n + 64) * (k + 16) + 4096;
  return (static_cast<std::size_t>(elements) * dtype_size(compute) + 63) / 64 * 64;
}

/// Scratch for `units` of work that need `share` bytes each (a multiple of 64): one share for each
/// thread of the issuing rank, but at most one per unit.
std::size_t units_workspace(std::int64_t units, std::size_t share);

}  // namespace tessera
