#pragma once

/// The one piece of arithmetic of all transports that are ours, so that they agree bit for bit.

#include <cstdint>
#include <span>

#include "tessera/distributed/process_group.h"
#include "tessera/tensor/dtype.h"

namespace tessera::distributed {

/// out[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ..., for count elements; `out` may
/// be one of the sources. Sources are in rank order, at least one. 16-bit floats are combined in
/// f32 and rounded once; see ReduceOp for the other rules. Throws InvalidArgument for an average or
/// a factor of integers.
void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> sources, void* out,
                     std::int64_t count);

}  // namespace tessera::distributed
