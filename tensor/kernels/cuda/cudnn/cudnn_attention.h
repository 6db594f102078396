#pragma once

/// Attention by cuDNN, for operands that attention_path() gives to it. Without cuDNN's headers; in
/// a build without cuDNN the version is 0 and nothing else is called.
///
/// Plans are made once for each geometry and GPU, which costs part of a second, and kept for the
/// life of the process. Any thread. Calls are of the current GPU. Errors of cuDNN: DeviceError, or
/// OutOfMemory.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/cuda/cudnn/attention_path.h"

namespace tessera::cuda {

CudnnFacts cudnn_facts();

/// What the scores of the derivative may take of the scratch (see cudnn_slices.h): more than that
/// goes slice after slice. For the whole process, counts from the next launch on; returns what it
/// was.
std::int64_t set_attention_slice_bytes(std::int64_t bytes);

/// Bytes of scratch; nothing where cuDNN has no deterministic plan for this geometry.
std::optional<std::size_t> cudnn_attention_bytes(const AttentionKernel::Args& a);
std::optional<std::size_t> cudnn_attention_bytes(const AttentionBackwardKernel::Args& a);

/// How cuDNN computes it here, for benchmarks and those who read them; nothing where it does not.
struct CudnnAttentionPlan {
  std::string name;             ///< cuDNN's engine and the choices for its knobs
  std::int64_t executions = 1;  ///< slices
};
std::optional<CudnnAttentionPlan> cudnn_attention_plan(const AttentionKernel::Args& a);
std::optional<CudnnAttentionPlan> cudnn_attention_plan(const AttentionBackwardKernel::Args& a);

/// `scratch` has at least cudnn_attention_bytes(). False, and nothing is done, where it says
/// nothing.
bool cudnn_attention(CudaStream stream, const AttentionKernel::Args& a, Workspace scratch);
bool cudnn_attention(CudaStream stream, const AttentionBackwardKernel::Args& a, Workspace scratch);

}  // namespace tessera::cuda
