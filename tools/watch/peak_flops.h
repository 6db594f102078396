#pragma once

/// The measured speed of this machine's matrix products, as the reference for "share of peak".

#include "tessera/tensor/device.h"
#include "tessera/tensor/dtype.h"

namespace tessera::tools {

/// Operations per second (a multiplication and an addition are two) of the fastest of several large
/// square products in `dtype`: on the CPU with the calling thread and the threads of its
/// RankContext, on a GPU on its current stream. Takes part of a second. Ranks on one machine must
/// call it at the same time; their sum is then the machine's peak. Throws InvalidArgument for a
/// dtype that is not floating.
double measure_peak_flops(DType dtype, Device device = kCpu);

}  // namespace tessera::tools
