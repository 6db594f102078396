#pragma once

/// Who computes a convolution on a GPU: cuDNN, or our own kernels, which take everything. Pure
/// functions, tested on the CPU.

#include <cstdint>
#include <limits>

#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cuda/cudnn/attention_path.h"

namespace tessera::cuda {

enum class ConvPath { kPlain, kCudnn };

/// cuDNN is asked for everything that its 32-bit extents can say; it may still have no plan that
/// keeps to a fixed order of sums and to the precision that f32 means.
inline ConvPath conv_path(const ConvGeometry& g, const CudnnFacts& facts) {
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const bool small = g.images <= most && g.groups * g.in_channels <= most &&
                     g.groups * g.out_channels <= most && g.plane() <= most && g.outputs() <= most;
  return facts.version >= 91900 && facts.major >= 8 && g.images > 0 && small ? ConvPath::kCudnn
                                                                             : ConvPath::kPlain;
}

}  // namespace tessera::cuda
