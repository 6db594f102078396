#pragma once

/// Attention and convolution by our own kernels. For the choice between these and cuDNN see
/// cudnn/paths.h.

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/conv.h"

namespace tessera::cuda {

/// Attention by our own kernels, which support everything that the CPU supports. For the choice
/// between these and cuDNN see cudnn/paths.h.
void plain_attention(CudaStream stream, const AttentionKernel::Args& a);

/// Bytes of scratch: the sum of dout * out of each row.
std::size_t plain_attention_backward_bytes(const AttentionBackwardKernel::Args& a);
void plain_attention_backward(CudaStream stream, const AttentionBackwardKernel::Args& a,
                              Workspace scratch);

// Convolution by our own kernels, which support every floating dtype and all strides. One thread
// gathers each result, or one block each element of a weight's gradient, in one order. For the
// cases that cuDNN does not support; not optimised.

void plain_conv(CudaStream stream, const ConvKernel::Args& a);
void plain_conv(CudaStream stream, const ConvBackwardInputKernel::Args& a);
void plain_conv(CudaStream stream, const ConvBackwardWeightKernel::Args& a);

/// y += bias of each channel.
void add_conv_bias(CudaStream stream, const ConvKernel::Args& a);

}  // namespace tessera::cuda
