// Memory of the emulated GPU: what it holds before and after its use, what pools count, what is
// refused.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tessera/tests/tools/emulated_gpu/gpu.h"
#include "tessera/tests/tools/emulated_gpu/kernels.h"

namespace tessera::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST_CASE("fresh memory is NaN, from the moment at which its stream gets there") {
  const TestPool pool;
  const TestStream stream, other;
  float* x = pool.take(4000, stream);
  launch_fill(other, x, 1000, 1);  // no wait for the stream that took it
  other.synchronize();
  stream.synchronize();
  std::vector<float> values(1000);
  ok(cudaMemcpy(values.data(), x, 4000, cudaMemcpyDeviceToHost));
  CHECK(std::isnan(values[0]));
  CHECK(std::isnan(values[999]));
  ok(cudaFreeAsync(x, stream));
  stream.synchronize();
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("memory that went back is overwritten, when its stream gets there") {
  const TestPool pool;
  const TestStream stream;
  float* x = pool.take(4000, stream);
  float seen[2] = {};
  launch_fill(stream, x, 1000, 1);
  ok(cudaMemcpyAsync(&seen[0], x, 4, cudaMemcpyDeviceToHost, stream));
  ok(cudaFreeAsync(x, stream));
  stream.synchronize();
  std::memcpy(&seen[1], x, 4);  // as a kernel would
  CHECK(seen[0] == 1);
  CHECK(std::bit_cast<std::uint32_t>(seen[1]) == 0xDDDDDDDD);
}
#endif

TEST_CASE("pools count what is used and reserved, and the peaks of both") {
  const TestPool pool;
  const TestStream stream;
  float* x = pool.take(3 * kMiB, stream);
  CHECK(pool.used() == 3 * kMiB);
  CHECK(pool.reserved() == 4 * kMiB);
  ok(cudaFreeAsync(x, stream));
  CHECK(pool.used() == 0);
  CHECK(pool.reserved() == 4 * kMiB);
  x = pool.take(100, stream);
  CHECK(pool.used() == 512);
  CHECK(pool.get(cudaMemPoolAttrUsedMemHigh) == 3 * kMiB);
  std::uint64_t zero = 0;
  ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
  CHECK(pool.get(cudaMemPoolAttrUsedMemHigh) == 512);
  stream.synchronize();
  ok(cudaMemPoolTrimTo(pool, 0));
  CHECK(pool.reserved() == 2 * kMiB);
  CHECK(pool.get(cudaMemPoolAttrReservedMemHigh) == 4 * kMiB);
  ok(cudaFreeAsync(x, stream));
  stream.synchronize();
}

TEST_CASE("memory goes to another stream only behind an event or a host that waited") {
  const TestPool pool;
  const TestStream a, b;
  const TestEvent event;
  ok(cudaFreeAsync(pool.take(2 * kMiB, a), a));
  ok(cudaFreeAsync(pool.take(2 * kMiB, a), a));
  CHECK(pool.reserved() == 2 * kMiB);
  ok(cudaFreeAsync(pool.take(2 * kMiB, b), b));  // not ordered
  CHECK(pool.reserved() == 4 * kMiB);
  ok(cudaEventRecord(event, a));
  ok(cudaStreamWaitEvent(b, event, 0));
  float* x = pool.take(4 * kMiB, b);
  CHECK(pool.reserved() == 4 * kMiB);
  ok(cudaFreeAsync(x, b));
  b.synchronize();
  x = pool.take(4 * kMiB, a);
  CHECK(pool.reserved() == 4 * kMiB);
  ok(cudaFreeAsync(x, a));
  a.synchronize();
}

TEST_CASE("a GPU has an end") {
  std::size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  CHECK(total == std::size_t{4} << 30);
  const TestPool pool;
  void* data = &free;
  CHECK(noted(cudaMallocFromPoolAsync(&data, free + 1, pool, nullptr)) ==
        cudaErrorMemoryAllocation);
  CHECK(data == nullptr);
  CHECK(noted(cudaMalloc(&data, free + 1)) == cudaErrorMemoryAllocation);
  CHECK(pool.reserved() == 0);
}

TEST_CASE("copies and fills outside of memory are refused") {
  const TestBuffer<float> x(10);
  float host[20] = {};
  CHECK(noted(cudaMemcpy(x.data(), host, 44, cudaMemcpyHostToDevice)) == cudaErrorInvalidValue);
  CHECK(noted(cudaMemcpy(host, host + 5, 8, cudaMemcpyDeviceToHost)) == cudaErrorInvalidValue);
  CHECK(noted(cudaMemcpy(x.data(), host, 8, cudaMemcpyDeviceToHost)) == cudaErrorInvalidValue);
  CHECK(noted(cudaMemset(host, 0, 4)) == cudaErrorInvalidValue);
  CHECK(noted(cudaMemset(x.data() + 9, 0, 5)) == cudaErrorInvalidValue);
  CHECK(noted(cudaMemcpy(x.data(), nullptr, 4, cudaMemcpyDefault)) == cudaErrorInvalidValue);
  CHECK(noted(cudaFree(host)) == cudaErrorInvalidValue);
  CHECK(noted(cudaFreeAsync(host, nullptr)) == cudaErrorInvalidValue);
  CHECK(noted(cudaFree(nullptr)) == cudaSuccess);
}

}  // namespace
}  // namespace tessera::testing
