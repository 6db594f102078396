// The table of errors against the toolkit that this build uses, and errors as exceptions. Needs no
// GPU.
#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <string>

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/error_meaning.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

TEST_CASE("the table's numbers are the toolkit's") {
  CHECK(cuda::error_meaning(cudaErrorMemoryAllocation).out_of_memory);
  for (cudaError_t final :
       {cudaErrorCudartUnloading, cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable,
        cudaErrorContained, cudaErrorIllegalAddress, cudaErrorLaunchTimeout,
        cudaErrorContextIsDestroyed, cudaErrorAssert, cudaErrorHardwareStackError,
        cudaErrorIllegalInstruction, cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace,
        cudaErrorInvalidPc, cudaErrorLaunchFailure, cudaErrorMpsClientTerminated,
        cudaErrorUnknown}) {
    INFO(cudaGetErrorName(final));
    CHECK(cuda::error_meaning(final).is_final);
  }
  const std::string driver = cuda::error_meaning(cudaErrorInsufficientDriver).advice;
  for (cudaError_t error : {cudaErrorInitializationError, cudaErrorCallRequiresNewerDriver,
                            cudaErrorUnsupportedPtxVersion, cudaErrorSystemDriverMismatch,
                            cudaErrorCompatNotSupportedOnDevice}) {
    INFO(cudaGetErrorName(error));
    CHECK(cuda::error_meaning(error).advice == driver);
  }
  CHECK(std::string(cuda::error_meaning(cudaErrorNoKernelImageForDevice).advice) ==
        cuda::error_meaning(cudaErrorInvalidKernelImage).advice);
  CHECK(std::string(cuda::error_meaning(cudaErrorDevicesUnavailable).advice) ==
        cuda::error_meaning(cudaErrorDeviceAlreadyInUse).advice);
}

TEST_CASE("every error of the toolkit becomes an exception with its name and text") {
  for (int code = 1; code <= 1000; ++code) {
    const auto error = static_cast<cudaError_t>(code);
    const std::string name = cudaGetErrorName(error);
    if (name == "unrecognized error code") continue;
    const std::string text = "[here] CUDA reports " + name + " (code " + std::to_string(code) +
                             ") in cudaSomething: " + cudaGetErrorString(error) + "; " +
                             cuda::error_meaning(code).advice;
    const auto throws = [code] { cuda::check_cuda(code, "here", "cudaSomething"); };
    CHECK(thrown<Error>(throws) == text);
    CHECK(thrown<OutOfMemory>(throws) ==
          (error == cudaErrorMemoryAllocation ? text : "another type of exception: " + text));
    CHECK(thrown<DeviceError>(throws) ==
          (error == cudaErrorMemoryAllocation ? "another type of exception: " + text : text));
  }
  cuda::check_cuda(cudaSuccess, "here", "cudaSomething");
}

}  // namespace
}  // namespace tessera
