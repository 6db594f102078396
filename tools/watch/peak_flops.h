#pragma once

/// What this machine's matrix products reach: the measure for the share of it that training uses.

#include "tessera/tensor/device.h"
#include "tessera/tensor/dtype.h"

namespace tessera::tools {

/// Operations per second (a multiplication and an addition are two) of the fastest of some large
/// square products in `dtype`: on the CPU by the calling thread and the threads of its RankContext,
/// on a GPU by its current stream. Takes part of a second. Ranks that share a machine call it at
/// the same time: then the sum of theirs is what the machine has. Throws InvalidArgument for a
/// dtype that is not floating.
double measure_peak_flops(DType dtype, Device device = kCpu);

}  // namespace tessera::tools
