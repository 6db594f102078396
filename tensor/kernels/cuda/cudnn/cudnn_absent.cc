// The cuDNN interface of a build without cuDNN: version 0.

#include <cstddef>
#include <optional>

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_kernels.h"

namespace tessera::cuda {

CudnnFacts cudnn_facts() { return {}; }
std::int64_t set_attention_slice_bytes(std::int64_t bytes) { return bytes; }

std::optional<std::size_t> cudnn_attention_bytes(const AttentionKernel::Args&) { return {}; }
std::optional<std::size_t> cudnn_attention_bytes(const AttentionBackwardKernel::Args&) {
  return {};
}
std::optional<CudnnAttentionPlan> cudnn_attention_plan(const AttentionKernel::Args&) { return {}; }
std::optional<CudnnAttentionPlan> cudnn_attention_plan(const AttentionBackwardKernel::Args&) {
  return {};
}
bool cudnn_attention(CudaStream, const AttentionKernel::Args&, Workspace) { return false; }
bool cudnn_attention(CudaStream, const AttentionBackwardKernel::Args&, Workspace) { return false; }

std::optional<std::size_t> cudnn_conv_bytes(const ConvKernel::Args&) { return {}; }
std::optional<std::size_t> cudnn_conv_bytes(const ConvBackwardInputKernel::Args&) { return {}; }
std::optional<std::size_t> cudnn_conv_bytes(const ConvBackwardWeightKernel::Args&) { return {}; }
bool cudnn_conv(CudaStream, const ConvKernel::Args&, Workspace) { return false; }
bool cudnn_conv(CudaStream, const ConvBackwardInputKernel::Args&, Workspace) { return false; }
bool cudnn_conv(CudaStream, const ConvBackwardWeightKernel::Args&, Workspace) { return false; }

}  // namespace tessera::cuda
