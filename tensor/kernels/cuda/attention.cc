#include "tessera/tensor/kernels/attention.h"

#include <optional>

#include "tessera/tensor/kernels/cuda/attention_path.h"
#include "tessera/tensor/kernels/cuda/attention_plain.h"
#include "tessera/tensor/kernels/cuda/cudnn_attention.h"

namespace tessera {
namespace {

// Scratch of cuDNN where it computes these operands.
template <class Args>
std::optional<std::size_t> cudnn_bytes(const Args& a) {
  if (cuda::attention_path(a, cuda::cudnn_facts()) != cuda::AttentionPath::kCudnn) return {};
  return cuda::cudnn_attention_bytes(a);
}

}  // namespace

std::size_t AttentionKernel::cuda_workspace(const Args& a) { return cudnn_bytes(a).value_or(0); }

void AttentionKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (cudnn_bytes(a)) return cuda::cudnn_attention(stream, a, scratch);
  cuda::plain_attention(stream, a);
}

std::size_t AttentionBackwardKernel::cuda_workspace(const Args& a) {
  const std::optional<std::size_t> bytes = cudnn_bytes(a);
  return bytes ? *bytes : cuda::plain_attention_backward_bytes(a);
}

void AttentionBackwardKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (cudnn_bytes(a)) return cuda::cudnn_attention(stream, a, scratch);
  cuda::plain_attention_backward(stream, a, scratch);
}

}  // namespace tessera
