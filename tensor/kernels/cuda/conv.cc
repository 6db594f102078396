#include "tessera/tensor/kernels/conv.h"

#include <optional>

#include "tessera/tensor/kernels/cuda/conv_path.h"
#include "tessera/tensor/kernels/cuda/conv_plain.h"
#include "tessera/tensor/kernels/cuda/cudnn_attention.h"
#include "tessera/tensor/kernels/cuda/cudnn_conv.h"

namespace tessera {
namespace {

// Scratch of cuDNN where it computes these operands.
template <class Args>
std::optional<std::size_t> cudnn_bytes(const Args& a) {
  if (cuda::conv_path(a.g, cuda::cudnn_facts()) != cuda::ConvPath::kCudnn) return {};
  return cuda::cudnn_conv_bytes(a);
}

template <class Args>
void convolve(CudaStream stream, const Args& a, Workspace scratch) {
  if (cudnn_bytes(a)) return cuda::cudnn_conv(stream, a, scratch);
  cuda::plain_conv(stream, a);
}

}  // namespace

std::size_t ConvKernel::cuda_workspace(const Args& a) { return cudnn_bytes(a).value_or(0); }
std::size_t ConvBackwardInputKernel::cuda_workspace(const Args& a) {
  return cudnn_bytes(a).value_or(0);
}
std::size_t ConvBackwardWeightKernel::cuda_workspace(const Args& a) {
  return cudnn_bytes(a).value_or(0);
}

void ConvKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (!cudnn_bytes(a)) return cuda::plain_conv(stream, a);
  cuda::cudnn_conv(stream, a, scratch);
  if (a.bias.defined()) cuda::add_conv_bias(stream, a);
}
void ConvBackwardInputKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  convolve(stream, a, scratch);
}
void ConvBackwardWeightKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  convolve(stream, a, scratch);
}

}  // namespace tessera
