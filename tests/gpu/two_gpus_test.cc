// Two GPUs in one process: copies between them, waits between their streams.
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::all_equal;
using testing::thrown;

constexpr Device kFirst{DeviceType::kCuda, 0}, kSecond{DeviceType::kCuda, 1};

Tensor counted(std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0f);
  return Tensor::from_vector<float>(values, {n});
}

TEST_CASE("two gpus: a copy waits for its source, and what follows for the copy") {
  const Tensor x = to_device(zeros({100003}), kFirst);
  stream_sleep(current_stream(kFirst), 20);
  copy_(x, to_device(counted(100003), kFirst));
  const Tensor there = to_device(x, kSecond);
  fill_(x, -1);
  CHECK(there.device() == kSecond);
  CHECK(all_equal(to_device(there, kCpu), counted(100003)).ok);
  stream_sleep(current_stream(kSecond), 20);
  const Tensor back = to_device(to_device(counted(1001), kSecond), kFirst);
  CHECK(all_equal(to_device(back, kCpu), counted(1001)).ok);
}

TEST_CASE("two gpus: streams wait for each other's events") {
  const DeviceStream first = DeviceStream::create(kFirst, StreamKind::kQueued, "first");
  const DeviceStream second = DeviceStream::create(kSecond, StreamKind::kQueued, "second");
  stream_sleep(first, 40);
  const DeviceEvent slept = first.record();
  second.wait(slept);
  second.synchronize();
  CHECK(slept.is_ready());
}

TEST_CASE("two gpus: operands on both are refused by name") {
  const Tensor a = full({2}, 1, {.device = kFirst}), b = full({2}, 2, {.device = kSecond});
  CHECK(thrown<InvalidArgument>([&] { copy_(a, b); }) ==
        "[copy_] operands are on cuda:0 and cuda:1; move them to one device");
}

}  // namespace
}  // namespace tessera
