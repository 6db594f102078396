// What kernels do wrong, on the emulated GPU: barriers, launches, hangs.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tools/emulated_gpu/gpu.h"
#include "tessera/tests/tools/emulated_gpu/kernels.h"

namespace tessera::testing {
namespace {

TEST_CASE("a barrier is needed, and is enough") {
  const TestBuffer<int> out(256);
  const auto good = [&] {
    const std::vector<int> values = out.values();
    for (int i = 0; i < 256; ++i)
      if (values[static_cast<std::size_t>(i)] != (i + 1) % 256) return false;
    return true;
  };
  launch_neighbours(nullptr, out.data(), true);
  CHECK(good());
#if !defined(__SANITIZE_THREAD__)  // which would end the test: it sees the race
  launch_neighbours(nullptr, out.data(), false);
  CHECK_FALSE(good());
#endif
}

TEST_CASE("folds of a block") {
  const TestBuffer<int> out(1);
  launch_block_sum(nullptr, out.data());
  CHECK(out.values()[0] == 255 * 256 / 2);
}

TEST_CASE("a launch that no GPU takes is refused where it is issued") {
  const TestStream stream;
  CHECK(thrown<DeviceError>([&] {
          launch_with_threads(stream, 1056);
        }).find("cudaErrorInvalidConfiguration") != std::string::npos);
  CHECK(thrown<DeviceError>([&] {
          launch_with_threads(stream, 0);
        }).find("cudaErrorInvalidConfiguration") != std::string::npos);
  launch_with_shared(stream, 48 << 10, false);
  launch_with_shared(stream, 227 << 10, true);
  CHECK(thrown<DeviceError>([&] {
          launch_with_shared(stream, 228 << 10, true);
        }).find("cudaError") != std::string::npos);
  stream.synchronize();
}

TEST_CASE("two GPUs: a stream takes kernels of its own GPU only") {
  const TestStream stream;
  ok(cudaSetDevice(1));
  CHECK(thrown<DeviceError>([&] {
          launch_with_threads(stream, 32);
        }).find("cudaErrorInvalidResourceHandle") != std::string::npos);
  TestEvent event;
  CHECK(noted(cudaEventRecord(event, stream)) == cudaErrorInvalidResourceHandle);
  ok(cudaSetDevice(0));
  CHECK(noted(cudaSetDevice(2)) == cudaErrorInvalidDevice);
  launch_with_threads(stream, 32);
  stream.synchronize();
}

TEST_CASE("handles of nothing are refused") {
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreate(&stream));
  ok(cudaStreamDestroy(stream));
  CHECK(noted(cudaStreamSynchronize(stream)) == cudaErrorInvalidResourceHandle);
  CHECK(noted(cudaStreamDestroy(nullptr)) == cudaErrorInvalidResourceHandle);
  CHECK(noted(cudaEventRecord(nullptr, nullptr)) == cudaErrorInvalidResourceHandle);
  CHECK(noted(cudaStreamCreate(nullptr)) == cudaErrorInvalidValue);
}

TEST_CASE("a hang is an error of the GPU, which takes no more work") {
  const TestStream stream;
  const TestBuffer<float> x(4);
  launch_hang(stream);
  launch_fill(stream, x.data(), 4, 1);
  CHECK(noted(cudaStreamSynchronize(stream)) == cudaErrorLaunchTimeout);
  void* data = nullptr;
  CHECK(cudaMalloc(&data, 4) == cudaErrorLaunchTimeout);
  CHECK(cudaGetLastError() == cudaErrorLaunchTimeout);  // stays
  CHECK(thrown<DeviceError>([&] {
          launch_fill(stream, x.data(), 4, 1);
        }).find("cudaErrorLaunchTimeout") != std::string::npos);
  ok(cudaSetDevice(1));
  const TestBuffer<float> elsewhere(4);
  launch_fill(nullptr, elsewhere.data(), 4, 2);
  CHECK(elsewhere.values()[3] == 2);
  ok(cudaSetDevice(0) == cudaErrorLaunchTimeout ? cudaSuccess : cudaErrorUnknown);
  ok(cudaDeviceReset());
  launch_fill(stream, x.data(), 4, 3);
  stream.synchronize();
  CHECK(x.values()[0] == 3);
}

}  // namespace
}  // namespace tessera::testing
