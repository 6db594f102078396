// TESSERA_EMULATED_GPUS=0: a machine with CUDA and without a GPU.
#include <catch2/catch.hpp>

#include "tessera/tests/tools/emulated_gpu/gpu.h"
#include "tessera/tools/cuda/device_count.h"

namespace tessera::testing {
namespace {

TEST_CASE("without a GPU every call says so") {
  CHECK(cuda::device_count() == 0);
  int count = -1;
  CHECK(noted(cudaGetDeviceCount(&count)) == cudaErrorNoDevice);
  CHECK(count == 0);
  void* data = nullptr;
  cudaStream_t stream = nullptr;
  CHECK(noted(cudaMalloc(&data, 4)) == cudaErrorNoDevice);
  CHECK(noted(cudaStreamCreate(&stream)) == cudaErrorNoDevice);
  CHECK(noted(cudaSetDevice(0)) == cudaErrorNoDevice);
  CHECK(noted(cudaDeviceSynchronize()) == cudaErrorNoDevice);
}

}  // namespace
}  // namespace tessera::testing
