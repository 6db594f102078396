#include "tessera/tensor/kernels/attention.h"

#include <optional>

#include "tessera/tensor/kernels/cuda/cudnn/attention_path.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_attention.h"
#include "tessera/tensor/kernels/cuda/windows/attention_plain.h"

namespace tessera {
namespace {

// Whether cuDNN is tried; it may still have no plan.
template <class Args>
bool asks_cudnn(const Args& a) {
  return cuda::attention_path(a, cuda::cudnn_facts()) == cuda::AttentionPath::kCudnn;
}

// Bytes of cuDNN's scratch if it computes these operands.
template <class Args>
std::optional<std::size_t> cudnn_bytes(const Args& a) {
  return asks_cudnn(a) ? cuda::cudnn_attention_bytes(a) : std::nullopt;
}

}  // namespace

std::size_t AttentionKernel::cuda_workspace(const Args& a) { return cudnn_bytes(a).value_or(0); }

void AttentionKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (asks_cudnn(a) && cuda::cudnn_attention(stream, a, scratch)) return;
  cuda::plain_attention(stream, a);
}

std::size_t AttentionBackwardKernel::cuda_workspace(const Args& a) {
  const std::optional<std::size_t> bytes = cudnn_bytes(a);
  return bytes ? *bytes : cuda::plain_attention_backward_bytes(a);
}

void AttentionBackwardKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (asks_cudnn(a) && cuda::cudnn_attention(stream, a, scratch)) return;
  cuda::plain_attention_backward(stream, a, scratch);
}

}  // namespace tessera
