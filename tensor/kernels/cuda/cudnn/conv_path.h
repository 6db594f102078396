#pragma once

/// The choice between cuDNN and our own kernels for convolution on a GPU; ours support everything.
/// Pure functions, tested on the CPU.

#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cuda/cudnn/attention_path.h"

namespace tessera::cuda {

enum class ConvPath { kPlain, kCudnn };

/// cuDNN is tried for everything within its 32-bit extents. It may still have no plan with a fixed
/// order of sums and full f32 precision.
inline ConvPath conv_path(const ConvGeometry& g, const CudnnFacts& facts) {
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const bool small = g.images <= most && g.groups * g.in_channels <= most &&
                     g.groups * g.out_channels <= most && g.plane() <= most && g.outputs() <= most;
  return facts.version >= 91900 && facts.major >= 8 && g.images > 0 && small ? ConvPath::kCudnn
                                                                             : ConvPath::kPlain;
}

}  // namespace tessera::cuda
