#pragma once

/// Attention by cuDNN, for operands for which attention_path() chooses it. Without cuDNN's headers;
/// in a build without cuDNN the version is 0 and nothing else is called.
///
/// A plan is made once for each geometry and GPU, which costs part of a second, and kept for the
/// life of the process. Thread-safe. Calls use the current GPU. Errors of cuDNN: DeviceError or
/// OutOfMemory.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cuda/cudnn/paths.h"

namespace tessera::cuda {

CudnnFacts cudnn_facts();

/// The most scratch for the scores of a derivative with a fixed order of sums (see cudnn_slices.h);
/// larger problems are computed in slices. For the whole process, from the next launch on; returns the previous value.
std::int64_t set_attention_slice_bytes(std::int64_t bytes);

/// Bytes of scratch; nothing if cuDNN has no plan for this geometry, in a fixed order if `a` asks for
/// one.
std::optional<std::size_t> cudnn_attention_bytes(const AttentionKernel::Args& a);
std::optional<std::size_t> cudnn_attention_bytes(const AttentionBackwardKernel::Args& a);

/// cuDNN's plan for this problem, for benchmarks; nothing if cuDNN does not compute it.
struct CudnnAttentionPlan {
  std::string name;             ///< cuDNN's engine, the values of its knobs, and the order of sums
  std::int64_t executions = 1;  ///< number of slices
};
std::optional<CudnnAttentionPlan> cudnn_attention_plan(const AttentionKernel::Args& a);
std::optional<CudnnAttentionPlan> cudnn_attention_plan(const AttentionBackwardKernel::Args& a);

/// `scratch` has at least cudnn_attention_bytes(). Returns false, and does nothing, if
/// cudnn_attention_bytes() returns nothing.
bool cudnn_attention(CudaStream stream, const AttentionKernel::Args& a, Workspace scratch);
bool cudnn_attention(CudaStream stream, const AttentionBackwardKernel::Args& a, Workspace scratch);

/// Convolution by cuDNN, for operands for which conv_path() chooses it. As cudnn_kernels.h.

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
