#pragma once

/// Convolution by our own kernels, which take every floating dtype and all strides: each result is
/// gathered by one thread, or of a weight's gradient by one block, in one order. For what cuDNN
/// does not take; not made for speed.

#include "tessera/tensor/kernels/conv.h"

namespace tessera::cuda {

void plain_conv(CudaStream stream, const ConvKernel::Args& a);
void plain_conv(CudaStream stream, const ConvBackwardInputKernel::Args& a);
void plain_conv(CudaStream stream, const ConvBackwardWeightKernel::Args& a);

/// y += bias, of each channel.
void add_conv_bias(CudaStream stream, const ConvKernel::Args& a);

}  // namespace tessera::cuda
