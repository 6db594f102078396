#pragma once

/// Products of odd extents as several products. For .cc files of this folder; pure functions, tested
/// on the CPU.
///
/// The library's kernels for tensor cores load 16 bytes at a time along the unit stride of each
/// matrix. If an extent along which a matrix has unit stride is not a multiple of 16 bytes, it takes
/// other kernels, also where all rows begin at multiples of 16 bytes: on an H100 the three products
/// of GPT-2's head, with 50257 classes, then take 30 ms instead of 5. So a large extent is cut into
/// one that is a multiple and the few elements that remain.

#include <vector>

#include "tessera/tensor/kernels/matmul.h"

namespace tessera::cuda {

/// Shorter extents are left whole: two launches would cost more.
inline constexpr std::int64_t kLeastSplitExtent = 1024;

/// Products that together compute `args`, in this order; empty if nothing is gained.
/// Where the inner extent is cut, the later part is added to the result of the former, which has
/// been rounded to its dtype: no more than 7 of at least 1024 terms.
std::vector<MatmulKernel::Args> matmul_parts(const MatmulKernel::Args& args);

}  // namespace tessera::cuda
