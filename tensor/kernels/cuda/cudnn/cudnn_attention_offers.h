#pragma once

/// For benchmarks: attention by every plan that cuDNN offers for it, with nothing of ours in
/// between. Without cuDNN's headers; in a build without cuDNN there are no offers.
///
/// The graph is that of cudnn_attention.h, but always of the whole problem: a derivative that we
/// cut into slices (cudnn_slices.h) needs more scratch here.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tessera/tensor/kernels/attention.h"

namespace tessera::cuda {

struct AttentionOffer {
  std::string plan;       ///< its name, as in CudnnAttentionPlan
  std::size_t bytes = 0;  ///< of scratch
  /// Binds the operands and so much scratch, and gives what computes once: one call of
  /// cudnnBackendExecute, by a handle that the offers share. One thread at a time, while the
  /// stream, the operands and the scratch live. Both throw DeviceError: a plan may exist and yet
  /// refuse to be executed.
  std::function<std::function<void()>(Workspace scratch)> bind;
};

/// Each plan once, whatever its numerics: first those among which cudnn_attention() chooses, the
/// ones that cuDNN's heuristics think best in front. Empty where there is none. On the current GPU;
/// compiles each plan, which may take part of a second. Errors of cuDNN: DeviceError, or
/// OutOfMemory.
std::vector<AttentionOffer> attention_offers(CudaStream stream, const AttentionKernel::Args& a);
std::vector<AttentionOffer> attention_offers(CudaStream stream,
                                             const AttentionBackwardKernel::Args& a);

}  // namespace tessera::cuda
