#pragma once

/// For benchmarks: attention by every plan that cuDNN offers for it, executed directly. Without
/// cuDNN's headers; a build without cuDNN offers no plans.
///
/// The graph is that of cudnn_kernels.h, but always of the full problem: a derivative that we
/// split into slices (cudnn_slices.h) needs more scratch here.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tessera/tensor/kernels/attention.h"

namespace tessera::cuda {

struct AttentionOffer {
  std::string plan;       ///< its name, as in CudnnAttentionPlan
  std::size_t bytes = 0;  ///< size of scratch
  /// Binds the operands and the scratch, and returns a function that computes once: one call of
  /// cudnnBackendExecute, with a handle that the offers share. One thread at a time, while the
  /// stream, the operands and the scratch exist. Both throw DeviceError: an existing plan may still
  /// fail to execute.
  std::function<std::function<void()>(Workspace scratch)> bind;
};

/// Each plan once, with any numerics: first the plans among which cudnn_attention() chooses, in the
/// order of cuDNN's heuristics. Empty if there is none. On the current GPU; compiles each plan,
/// which may take part of a second. Errors of cuDNN: DeviceError or OutOfMemory.
std::vector<AttentionOffer> attention_offers(CudaStream stream, const AttentionKernel::Args& a);
std::vector<AttentionOffer> attention_offers(CudaStream stream,
                                             const AttentionBackwardKernel::Args& a);

}  // namespace tessera::cuda
