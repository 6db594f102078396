#pragma once

/// Attention by our own kernels, which support everything that the CPU supports. For the choice
/// between these and cuDNN see cudnn/attention_path.h.

#include "tessera/tensor/kernels/attention.h"

namespace tessera::cuda {

void plain_attention(CudaStream stream, const AttentionKernel::Args& a);

/// Bytes of scratch: the sum of dout * out of each row.
std::size_t plain_attention_backward_bytes(const AttentionBackwardKernel::Args& a);
void plain_attention_backward(CudaStream stream, const AttentionBackwardKernel::Args& a,
                              Workspace scratch);

}  // namespace tessera::cuda
