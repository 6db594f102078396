// Capture and replay on the emulated GPU, and what CUDA refuses during a capture.
#include <catch2/catch.hpp>
#include <cmath>
#include <thread>
#include <vector>

#include "tessera/tests/tools/emulated_gpu/gpu.h"
#include "tessera/tests/tools/emulated_gpu/kernels.h"

namespace tessera::testing {
namespace {

constexpr int kCount = 100;

void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  ok(cudaStreamBeginCapture(stream, mode));
}

cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  ok(cudaStreamIsCapturing(stream, &status));
  return status;
}

// Ends a capture that must be broken.
cudaError_t end_broken(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = noted(cudaStreamEndCapture(stream, &graph));
  CHECK(graph == nullptr);
  CHECK(status_of(stream) == cudaStreamCaptureStatusNone);
  return error;
}

class TestGraph {
 public:
  explicit TestGraph(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    ok(cudaStreamEndCapture(stream, &graph));
    ok(cudaGraphInstantiate(&exec_, graph, 0));
    ok(cudaGraphDestroy(graph));
  }
  ~TestGraph() { cudaGraphExecDestroy(exec_); }
  TestGraph(const TestGraph&) = delete;
  TestGraph& operator=(const TestGraph&) = delete;
  void launch(cudaStream_t stream) const { ok(cudaGraphLaunch(exec_, stream)); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

TEST_CASE("a captured sequence runs at each launch, and not before") {
  const TestStream stream;
  const TestBuffer<float> x(kCount);
  launch_fill(stream, x.data(), kCount, 1);
  begin(stream);
  launch_scale(stream, x.data(), kCount, 2, 0);
  launch_scale(stream, x.data(), kCount, 1, 1);
  CHECK(status_of(stream) == cudaStreamCaptureStatusActive);
  const TestGraph graph(stream);
  stream.synchronize();
  CHECK(x.values()[0] == 1);
  for (int i = 0; i < 3; ++i) graph.launch(stream);
  stream.synchronize();
  CHECK(x.values()[kCount - 1] == 15);
}

TEST_CASE("a stream that waits for a captured event joins, and must join back") {
  for (const bool joins_back : {true, false}) {
    const TestStream stream, side;
    const TestEvent forked, joined;
    const TestBuffer<float> x(kCount);
    begin(stream, cudaStreamCaptureModeRelaxed);
    launch_fill(stream, x.data(), kCount, 3);
    ok(cudaEventRecord(forked, stream));
    ok(cudaStreamWaitEvent(side, forked, 0));
    CHECK(status_of(side) == cudaStreamCaptureStatusActive);
    launch_scale(side, x.data(), kCount, 2, 0);
    ok(cudaEventRecord(joined, side));
    CHECK(noted(cudaEventQuery(joined)) == cudaErrorCapturedEvent);
    if (!joins_back) {
      CHECK(end_broken(stream) == cudaErrorStreamCaptureUnjoined);
      CHECK(status_of(side) == cudaStreamCaptureStatusNone);
      continue;
    }
    ok(cudaStreamWaitEvent(stream, joined, 0));
    const TestGraph graph(stream);
    graph.launch(stream);
    stream.synchronize();
    CHECK(x.values()[0] == 6);
    CHECK(noted(cudaStreamWaitEvent(stream, joined, 0)) == cudaErrorCapturedEvent);
  }
}

TEST_CASE("what would have to wait for captured work is refused and breaks the capture") {
  const TestStream stream;
  const TestBuffer<float> x(kCount);
  float host = 0;
  const auto broken_by = [&](auto refused) {
    begin(stream);
    const cudaError_t error = noted(refused());
    CHECK(status_of(stream) == cudaStreamCaptureStatusInvalidated);
    CHECK(end_broken(stream) == cudaErrorStreamCaptureInvalidated);
    return error;
  };
  const cudaError_t unsupported = cudaErrorStreamCaptureUnsupported;
  CHECK(broken_by([&] { return cudaStreamSynchronize(stream); }) == unsupported);
  CHECK(broken_by([&] { return cudaStreamQuery(stream); }) == unsupported);
  CHECK(broken_by([] { return cudaDeviceSynchronize(); }) == unsupported);
  CHECK(broken_by([&] {
          return cudaMemcpyAsync(&host, x.data(), 4, cudaMemcpyDeviceToHost, stream);
        }) == unsupported);
  void* data = nullptr;
  CHECK(broken_by([&] { return cudaMalloc(&data, 100); }) == unsupported);
  const TestStream other;
  const TestEvent event;
  ok(cudaEventRecord(event, other));
  CHECK(broken_by([&] { return cudaStreamWaitEvent(stream, event, 0); }) ==
        cudaErrorStreamCaptureIsolation);
}

TEST_CASE("modes: whose unsafe calls are refused") {
  const TestStream stream;
  const auto allocate = [] {
    void* data = nullptr;
    const cudaError_t error = noted(cudaMalloc(&data, 100));
    cudaThreadExchangeStreamCaptureMode(nullptr);
    cudaGetLastError();
    return error;
  };
  cudaError_t error = cudaSuccess;
  begin(stream, cudaStreamCaptureModeThreadLocal);
  std::thread([&] { error = allocate(); }).join();
  CHECK(error == cudaSuccess);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ok(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeGlobal);
  CHECK(allocate() == cudaSuccess);
  ok(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(allocate() == cudaErrorStreamCaptureUnsupported);
  CHECK(end_broken(stream) == cudaErrorStreamCaptureInvalidated);
  begin(stream);
  std::thread([&] { error = allocate(); }).join();
  CHECK(error == cudaErrorStreamCaptureUnsupported);
  CHECK(end_broken(stream) == cudaErrorStreamCaptureInvalidated);
  begin(stream);
  std::thread([&] {
    cudaGraph_t graph = nullptr;
    error = cudaStreamEndCapture(stream, &graph);
  }).join();
  CHECK(error == cudaErrorStreamCaptureWrongThread);
  const TestGraph empty(stream);
  empty.launch(stream);
  stream.synchronize();
}

TEST_CASE("captures that are wrongly begun or ended") {
  const TestStream stream, side;
  CHECK(noted(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal)) ==
        cudaErrorStreamCaptureUnsupported);
  CHECK(end_broken(stream) == cudaErrorIllegalState);
  begin(stream);
  CHECK(noted(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)) ==
        cudaErrorIllegalState);
  const TestEvent event;
  ok(cudaEventRecord(event, stream));
  ok(cudaStreamWaitEvent(side, event, 0));
  cudaGraph_t graph = nullptr;
  CHECK(noted(cudaStreamEndCapture(side, &graph)) == cudaErrorStreamCaptureUnmatched);
  CHECK(end_broken(stream) == cudaErrorStreamCaptureInvalidated);
}

TEST_CASE("memory that a graph allocates is its own") {
  const TestPool pool;
  const TestStream stream;
  const TestBuffer<float> out(kCount);
  float* outside = pool.take(100, stream);
  begin(stream);
  CHECK(noted(cudaFreeAsync(outside, stream)) == cudaErrorInvalidValue);
  float* data = pool.take(kCount * sizeof(float), stream);
  launch_scale(stream, data, kCount, 0, 1);
  ok(cudaMemcpyAsync(out.data(), data, kCount * sizeof(float), cudaMemcpyDeviceToDevice, stream));
  ok(cudaFreeAsync(data, stream));
  const TestGraph graph(stream);
  for (int i = 0; i < 2; ++i) {
    graph.launch(stream);
    stream.synchronize();
    CHECK(std::isnan(out.values()[0]));  // fresh at each launch
  }
  ok(cudaFreeAsync(outside, stream));
  stream.synchronize();
}

}  // namespace
}  // namespace tessera::testing
