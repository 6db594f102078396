#pragma once

/// Times work on a stream.

#include <cuda_runtime_api.h>

#include "tessera/tensor/cuda/check_cuda.h"

namespace tessera::cuda {

/// The time between two points of a stream. Errors are tagged `where`.
class StreamWatch {
 public:
  StreamWatch(cudaStream_t stream, const char* where) : stream_(stream), where_(where) {
    check_cuda(cudaEventCreate(&begin_), where_, "cudaEventCreate");
    if (const cudaError_t made = cudaEventCreate(&end_); made != cudaSuccess) {
      cudaEventDestroy(begin_);
      check_cuda(made, where_, "cudaEventCreate");
    }
  }
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;
  ~StreamWatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  /// Microseconds of the work that `body` issues on the stream; waits for it.
  template <class Body>
  double time(const Body& body) const {
    float milliseconds = 0;
    check_cuda(cudaEventRecord(begin_, stream_), where_, "cudaEventRecord");
    body();
    check_cuda(cudaEventRecord(end_, stream_), where_, "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end_), where_, "cudaEventSynchronize");
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), where_, "cudaEventElapsedTime");
    return 1000.0 * milliseconds;
  }

 private:
  cudaStream_t stream_;
  const char* where_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace tessera::cuda
