// Page-locked tensors: asynchronous copies both ways, after which the host waits when it accesses
// the copied memory; and memory that is not reused too early.
#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;
using Clock = std::chrono::steady_clock;

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr std::int64_t kCount = 5000;

Tensor pinned(double value) {
  const Tensor out = Tensor::empty({kCount}, {.device = kCpu, .pinned = true});
  fill_(out, value);
  return out;
}

bool all_are(const Tensor& x, float value) {
  for (const float each : x.to_vector<float>()) {
    if (each != value) return false;
  }
  return true;
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

TEST_CASE("a pinned tensor is one of the CPU like others", "[gpu]") {
  const Tensor x = pinned(2);
  CHECK(x.device() == kCpu);
  CHECK(x.storage().is_pinned());
  CHECK_FALSE(full({3}, 1, {.device = kCpu}).storage().is_pinned());
  CHECK(all_are(add(x, x), 4));
  CHECK(Tensor::empty({0}, {.device = kCpu, .pinned = true}).numel() == 0);
  CHECK(thrown<InvalidArgument>([] {
          Tensor::empty({1}, {.device = kGpu, .pinned = true});
        }).find("only the host's memory can be page-locked") != std::string::npos);
}

TEST_CASE("a copy from pinned memory: the host goes on, and waits before it writes", "[gpu]") {
  const Tensor x = pinned(3);
  const Tensor out = full({kCount}, 0, {.device = kGpu});
  current_stream(kGpu).synchronize();
  stream_sleep(current_stream(kGpu), 200);
  auto start = Clock::now();
  transfer_(out, x);
  CHECK(ms_since(start) < 150);
  fill_(x, 7);  // the copy has read it
  CHECK(ms_since(start) > 150);
  CHECK(all_are(out, 3));
  CHECK(all_are(x, 7));
}

TEST_CASE("a copy into pinned memory: the host goes on, and waits before it reads", "[gpu]") {
  const Tensor out = pinned(1);
  const Tensor x = full({kCount}, 5, {.device = kGpu});
  current_stream(kGpu).synchronize();
  stream_sleep(current_stream(kGpu), 200);
  const auto start = Clock::now();
  transfer_(out, x);
  CHECK(ms_since(start) < 150);
  CHECK(all_are(out, 5));
}

TEST_CASE("pinned copies on two streams are both waited for", "[gpu]") {
  const DeviceStream other = DeviceStream::create(kGpu, StreamKind::kQueued, "other");
  const Tensor x = pinned(3);
  const Tensor a = full({kCount}, 0, {.device = kGpu}), b = full({kCount}, 0, {.device = kGpu});
  current_stream(kGpu).synchronize();
  {
    const StreamGuard guard(other);
    stream_sleep(other, 100);
    transfer_(b, x);
  }
  transfer_(a, x);
  fill_(x, 9);
  other.synchronize();
  CHECK(all_are(a, 3));
  CHECK(all_are(b, 3));
}

TEST_CASE("pinned memory that was let go of during a copy is not used too early", "[gpu]") {
  const Tensor out = full({kCount}, 0, {.device = kGpu});
  current_stream(kGpu).synchronize();
  for (int round = 1; round <= 10; ++round) {
    const Tensor expected = full({kCount}, round, {.device = kCpu});
    stream_sleep(current_stream(kGpu), 10);
    transfer_(out, pinned(round));
    const Tensor next = pinned(-1);  // may get the memory only after the copy
    CHECK(all_are(out, static_cast<float>(round)));
    CHECK(all_are(next, -1));
  }
}

TEST_CASE("a pinned tensor goes to a GPU and comes back", "[gpu]") {
  const Tensor x = pinned(4);
  const Tensor there = to_device(x, kGpu);
  const Tensor back = Tensor::empty({kCount}, {.device = kCpu, .pinned = true});
  transfer_(back, there);
  CHECK(all_are(back, 4));
  CHECK(all_are(to_device(there, kCpu), 4));
}

TEST_CASE("pinned bytes are counted while the tensor lives", "[gpu]") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  const Tensor on_gpu = full({kCount}, 1, {.device = kGpu});
  const std::int64_t before = context->memory().current().total();
  {
    const Tensor x = Tensor::empty({kCount}, {.device = kCpu, .pinned = true});
    transfer_(x, on_gpu);
    CHECK(context->memory().current().total() == before + 20032);
  }
  CHECK(context->memory().current().total() == before);
}

TEST_CASE("transfer_ takes tensors that fit together, on two devices", "[gpu]") {
  const Tensor x = pinned(1);
  const auto message = [&](const Tensor& out) {
    return thrown<InvalidArgument>([&] { transfer_(out, x); });
  };
  CHECK(message(pinned(2)).find("copies between two devices") != std::string::npos);
  CHECK(message(full({kCount + 1}, 0, {.device = kGpu})).find("cannot be copied into") !=
        std::string::npos);
  CHECK(message(full({kCount}, 0, {.dtype = DType::kF64, .device = kGpu}))
            .find("cannot be copied into") != std::string::npos);
}

}  // namespace tessera
