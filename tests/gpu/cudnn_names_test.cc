// The table of statuses against the cuDNN that this build uses, and statuses as exceptions. Needs
// no GPU.
#include <catch2/catch.hpp>
#include <string>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graph.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_meaning.h"
#include "tessera/tests/support/throws.h"

namespace tessera::cuda {
namespace {

using testing::thrown;

CudnnKind kind(cudnnStatus_t status) { return cudnn_meaning(status).kind; }

}  // namespace

TEST_CASE("the numbers of the table are cuDNN's") {
  CHECK(kind(CUDNN_STATUS_SUCCESS) == CudnnKind::kSuccess);
  CHECK(kind(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED) == CudnnKind::kOutOfMemory);
  CHECK(kind(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) == CudnnKind::kOutOfMemory);
  CHECK(kind(CUDNN_STATUS_NOT_SUPPORTED) == CudnnKind::kRefusal);
  CHECK(kind(CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE) == CudnnKind::kRefusal);
  CHECK(kind(CUDNN_STATUS_BAD_PARAM) == CudnnKind::kFailure);
  CHECK(kind(CUDNN_STATUS_EXECUTION_FAILED) == CudnnKind::kFailure);
  const std::string install = cudnn_meaning(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH).advice;
  CHECK(cudnn_meaning(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED).advice == install);
  CHECK(cudnn_meaning(CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART).advice == install);
}

TEST_CASE("every status of cuDNN becomes an exception with its name") {
  for (int code = 1; code < 6000; ++code) {
    const auto status = static_cast<cudnnStatus_t>(code);
    const std::string name = cudnnGetErrorString(status);
    if (name.find("CUDNN_STATUS") == std::string::npos) continue;
    const auto throws = [status] { check_cudnn(status, "here", "cudnnSomething"); };
    const bool memory = kind(status) == CudnnKind::kOutOfMemory;
    const std::string text = memory ? thrown<OutOfMemory>(throws) : thrown<DeviceError>(throws);
    INFO(name << ": " << text);
    CHECK(text.find("[here] cuDNN reports " + name + " (code " + std::to_string(code) +
                    ") in cudnnSomething: ") == 0);
    CHECK(text.find(cudnn_meaning(code).advice) != std::string::npos);
  }
  check_cudnn(CUDNN_STATUS_SUCCESS, "here", "cudnnSomething");
}

TEST_CASE("a graph that cuDNN finds wrong is an error, not a refusal") {
  CudnnGraph graph("here");
  const auto x = graph.tensor({.shape = {1, 2, 3, 4}, .strides = {}});
  const auto y = graph.tensor({.shape = {1, 2, 5, 7}, .strides = {}});
  const std::string text = thrown<DeviceError>([&] { graph.matmul(x, x, y); });
  CHECK(text.find("[here] cuDNN reports CUDNN_STATUS_") == 0);
}

}  // namespace tessera::cuda
