#pragma once

/// Convolution by cuDNN, for operands for which conv_path() chooses it. As cudnn_attention.h.

#include <cstddef>
#include <optional>

#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cuda/cudnn/conv_path.h"

namespace tessera::cuda {

/// Bytes of scratch; nothing if cuDNN has no deterministic plan for this geometry.
std::optional<std::size_t> cudnn_conv_bytes(const ConvKernel::Args& a);
std::optional<std::size_t> cudnn_conv_bytes(const ConvBackwardInputKernel::Args& a);
std::optional<std::size_t> cudnn_conv_bytes(const ConvBackwardWeightKernel::Args& a);

/// `scratch` has at least cudnn_conv_bytes(). Returns false, and does nothing, if that returns
/// nothing. The forward adds no bias.
bool cudnn_conv(CudaStream stream, const ConvKernel::Args& a, Workspace scratch);
bool cudnn_conv(CudaStream stream, const ConvBackwardInputKernel::Args& a, Workspace scratch);
bool cudnn_conv(CudaStream stream, const ConvBackwardWeightKernel::Args& a, Workspace scratch);

}  // namespace tessera::cuda
