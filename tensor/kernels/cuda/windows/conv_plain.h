#pragma once

/// Convolution by our own kernels, which support every floating dtype and all strides. One thread
/// gathers each result, or one block each element of a weight's gradient, in one order. For the
/// cases that cuDNN does not support; not optimised.

#include "tessera/tensor/kernels/conv.h"

namespace tessera::cuda {

void plain_conv(CudaStream stream, const ConvKernel::Args& a);
void plain_conv(CudaStream stream, const ConvBackwardInputKernel::Args& a);
void plain_conv(CudaStream stream, const ConvBackwardWeightKernel::Args& a);

/// y += bias of each channel.
void add_conv_bias(CudaStream stream, const ConvKernel::Args& a);

}  // namespace tessera::cuda
