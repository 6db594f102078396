// Streams and events of the emulated GPU: order, waits, and that a missing wait shows.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/tests/tools/emulated_gpu/gpu.h"
#include "tessera/tests/tools/emulated_gpu/kernels.h"

namespace tessera::testing {
namespace {

constexpr int kCount = 1000;

bool all_are(const std::vector<float>& values, float expected) {
  for (const float value : values)
    if (value != expected) return false;
  return true;
}

TEST_CASE("a stream runs in order, behind the host") {
  const TestStream stream;
  const TestBuffer<float> x(kCount);
  launch_fill(stream, x.data(), kCount, 1);
  for (int i = 0; i < 10; ++i) launch_scale(stream, x.data(), kCount, 2, 1);
  CHECK(noted(cudaStreamQuery(stream)) == cudaErrorNotReady);
  stream.synchronize();
  CHECK(noted(cudaStreamQuery(stream)) == cudaSuccess);
  CHECK(all_are(x.values(), 2047));
}

TEST_CASE("work that nobody waited for is not done") {
  const TestStream stream;
  const TestBuffer<float> x(kCount);
  launch_fill(stream, x.data(), kCount, 1);
  CHECK(std::isnan(x.values()[0]));  // the null stream waits for no stream of this kind
  stream.synchronize();
  CHECK(all_are(x.values(), 1));
}

TEST_CASE("the null stream waits for streams that are not non-blocking") {
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreate(&stream));
  const TestBuffer<float> x(kCount);
  launch_sleep(stream, 2000);
  launch_fill(stream, x.data(), kCount, 1);
  CHECK(all_are(x.values(), 1));
  ok(cudaStreamDestroy(stream));
}

TEST_CASE("a stream that waits for an event sees what was issued before it; without, it does not") {
  for (const bool waits : {true, false}) {
    const TestStream a, b;
    const TestEvent event;
    const TestBuffer<float> x(kCount), y(kCount);
    launch_fill(a, x.data(), kCount, 3);
    ok(cudaEventRecord(event, a));
    if (waits) ok(cudaStreamWaitEvent(b, event, 0));
    ok(cudaMemcpyAsync(y.data(), x.data(), kCount * sizeof(float), cudaMemcpyDeviceToDevice, b));
    b.synchronize();
    CHECK(all_are(y.values(), 3) == waits);
    a.synchronize();
  }
}

TEST_CASE("a wait binds to the latest record; an event that was never recorded is no wait") {
  const TestStream a, b;
  const TestEvent event;
  ok(cudaStreamWaitEvent(b, event, 0));
  CHECK(noted(cudaEventQuery(event)) == cudaSuccess);
  ok(cudaEventRecord(event, a));
  ok(cudaStreamWaitEvent(b, event, 0));
  launch_sleep(a, 30000);
  ok(cudaEventRecord(event, a));
  b.synchronize();
  CHECK(noted(cudaEventQuery(event)) == cudaErrorNotReady);
  ok(cudaEventSynchronize(event));
  CHECK(noted(cudaEventQuery(event)) == cudaSuccess);
}

TEST_CASE("events measure time") {
  const TestStream stream;
  const TestEvent start, end;
  ok(cudaEventRecord(start, stream));
  launch_sleep(stream, 20000);
  ok(cudaEventRecord(end, stream));
  float milliseconds = 0;
  CHECK(noted(cudaEventElapsedTime(&milliseconds, start, end)) == cudaErrorNotReady);
  stream.synchronize();
  ok(cudaEventElapsedTime(&milliseconds, start, end));
  CHECK(milliseconds >= 20);
  cudaEvent_t untimed = nullptr;
  ok(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  ok(cudaEventRecord(untimed, stream));
  CHECK(noted(cudaEventElapsedTime(&milliseconds, start, untimed)) ==
        cudaErrorInvalidResourceHandle);
  ok(cudaEventDestroy(untimed));
}

TEST_CASE("pageable copies are done with the host's memory when they return, pinned ones are not") {
  const TestStream stream;
  const TestBuffer<float> x(kCount);
  constexpr std::size_t kBytes = kCount * sizeof(float);
  std::vector<float> pageable(kCount, 5);
  launch_sleep(stream, 2000);
  ok(cudaMemcpyAsync(x.data(), pageable.data(), kBytes, cudaMemcpyHostToDevice, stream));
  pageable.assign(kCount, 6);
  ok(cudaMemcpyAsync(pageable.data(), x.data(), kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(all_are(pageable, 5));

  float* pinned = nullptr;
  ok(cudaHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, cudaHostAllocPortable));
  pinned[kCount - 1] = 1;
  launch_fill(stream, x.data(), kCount, 7);
  ok(cudaMemcpyAsync(pinned, x.data(), kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(pinned[kCount - 1] == 1);
  stream.synchronize();
  CHECK(pinned[kCount - 1] == 7);
  ok(cudaFreeHost(pinned));
}

TEST_CASE("host functions run in stream order, and may call nothing") {
  struct Seen {
    const float* value;
    float before = 0, after = 0;
    cudaError_t refused = cudaSuccess;
  };
  const TestStream stream;
  float* value = nullptr;
  ok(cudaHostAlloc(reinterpret_cast<void**>(&value), sizeof(float), cudaHostAllocPortable));
  Seen seen{.value = value};
  launch_fill(stream, value, 1, 1);
  ok(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        auto* out = static_cast<Seen*>(data);
        out->before = *out->value;
        out->refused = cudaDeviceSynchronize();
      },
      &seen));
  launch_fill(stream, value, 1, 2);
  ok(cudaLaunchHostFunc(
      stream,
      [](void* data) { static_cast<Seen*>(data)->after = *static_cast<Seen*>(data)->value; },
      &seen));
  stream.synchronize();
  CHECK(seen.before == 1);
  CHECK(seen.after == 2);
  CHECK(seen.refused == cudaErrorNotPermitted);
  ok(cudaFreeHost(value));
}

TEST_CASE("a stream that is destroyed still runs what was issued") {
  const TestBuffer<float> x(kCount);
  const TestEvent event;
  {
    const TestStream stream;
    launch_sleep(stream, 5000);
    launch_fill(stream, x.data(), kCount, 4);
    ok(cudaEventRecord(event, stream));
  }
  ok(cudaEventSynchronize(event));
  CHECK(all_are(x.values(), 4));
}

TEST_CASE("many host threads issue and wait") {
  std::vector<std::thread> threads;
  std::vector<int> good(8, 0);
  for (std::size_t t = 0; t < good.size(); ++t) {
    threads.emplace_back([&, t] {
      const TestStream a, b;
      const TestEvent event;
      const TestBuffer<float> x(kCount);
      for (int i = 0; i < 20; ++i) {
        launch_fill(a, x.data(), kCount, static_cast<float>(i));
        ok(cudaEventRecord(event, a));
        ok(cudaStreamWaitEvent(b, event, 0));
        launch_scale(b, x.data(), kCount, 2, 1);
        ok(cudaEventRecord(event, b));
        ok(cudaStreamWaitEvent(a, event, 0));
      }
      a.synchronize();
      good[t] = all_are(x.values(), 39) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == std::vector<int>(8, 1));
}

}  // namespace
}  // namespace tessera::testing
