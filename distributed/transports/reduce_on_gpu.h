#pragma once

/// reduce_in_order on a GPU: the same arithmetic element by element, so the same bits.

#include <cstdint>
#include <span>

#include "tessera/distributed/reduce_op.h"
#include "tessera/tensor/dtype.h"

struct CUstream_st;  // of the CUDA runtime

namespace tessera::distributed {

/// The most ranks whose parts one launch adds up.
inline constexpr int kMostGpuSources = 256;

/// out[i] from sources[0][i], sources[1][i], ..., issued on `stream`, whose GPU is the current one
/// and can read all of them. At least one and at most kMostGpuSources; `out` may be one of them. An
/// average or a factor of integers writes nothing: collectives refuse it.
void reduce_on_gpu(CUstream_st* stream, DType dtype, const ReduceOp& op,
                   std::span<const void* const> sources, void* out, std::int64_t count);

}  // namespace tessera::distributed
