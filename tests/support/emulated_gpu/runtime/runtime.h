#pragma once

/// What libraries of the emulated GPU (cuBLAS, cuDNN, NCCL) build on: work that runs in the order
/// of a CUDA stream. The CUDA runtime's own functions are declared by the toolkit's headers.

#include <cuda_runtime_api.h>

#include <functional>

namespace tessera::emulated {

/// Issues `work` on a stream. It runs in stream order on the stream's host thread, for the null
/// stream before the call returns; on a stream that is being captured it becomes a part of the
/// graph and runs at each launch of that, so it must be able to run often. It may wait for work of
/// other streams, and makes no CUDA calls. An exception is a failure of the GPU: its text is
/// printed, and the GPU takes no more work.
///
/// Returns what a launch returns: cudaErrorInvalidResourceHandle for a stream that is none, the
/// failure of the GPU, an error of the capture.
cudaError_t issue_work(cudaStream_t stream, std::function<void()> work);

}  // namespace tessera::emulated
