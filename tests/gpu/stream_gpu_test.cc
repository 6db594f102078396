// Streams and events on a GPU: order, waits between GPU and CPU streams, closures, failures.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tessera/tensor/cuda/queue.h"
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

DeviceStream on_gpu(const std::string& name) {
  return DeviceStream::create(kGpu, StreamKind::kInline, name);
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

TEST_CASE("gpu stream: identity") {
  const DeviceStream stream = on_gpu("compute");
  CHECK(stream.kind() == StreamKind::kQueued);
  CHECK(stream.device() == kGpu);
  CHECK(stream.cuda_handle() != nullptr);
  CHECK(current_stream(kGpu).name() == "default");
  const StreamGuard guard(stream);
  CHECK(current_stream(kGpu) == stream);
  DeviceStream of_another;
  std::thread([&] { of_another = current_stream(kGpu); }).join();
  CHECK(of_another.name() == "default");
  CHECK_FALSE(of_another == stream);
}

TEST_CASE("gpu stream: sleeps, while the host goes on") {
  const DeviceStream stream = on_gpu("compute");
  stream.synchronize();
  const auto start = Clock::now();
  stream_sleep(stream, 50);
  const DeviceEvent slept = stream.record("slept");
  CHECK(milliseconds_since(start) < 40);
  CHECK_FALSE(slept.is_ready());
  slept.synchronize();
  CHECK(milliseconds_since(start) >= 50);
  CHECK(slept.is_ready());
}

TEST_CASE("gpu stream: streams run beside each other, and wait for each other's events") {
  const DeviceStream a = on_gpu("a"), b = on_gpu("b");
  stream_sleep(a, 60);
  const DeviceEvent slept = a.record();
  const DeviceEvent at_once = b.record();
  at_once.synchronize();
  CHECK_FALSE(slept.is_ready());
  b.wait(slept);
  const DeviceEvent after = b.record();
  after.synchronize();
  CHECK(slept.is_ready());
}

TEST_CASE("gpu stream: a wait binds to the record at the time of the call") {
  const DeviceStream a = on_gpu("a"), b = on_gpu("b");
  DeviceEvent event("mark");
  event.record(a);
  b.wait(event);
  stream_sleep(a, 80);
  event.record(a);
  b.synchronize();
  CHECK_FALSE(event.is_ready());
  a.synchronize();
  CHECK(event.is_ready());
}

TEST_CASE("gpu stream: closures run in order, under the issuer's context") {
  const auto context = std::make_shared<RankContext>(3, 4, 1);
  const RankScope scope(context);
  const DeviceStream stream = on_gpu("compute");
  std::vector<int> ran;
  int rank = -1;
  for (int i = 0; i < 5; ++i) stream.enqueue("note", [&, i] { ran.push_back(i); });
  stream.enqueue("rank", [&] { rank = current_rank_context()->rank(); });
  stream.synchronize();
  CHECK(ran == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(rank == 3);
}

TEST_CASE("gpu stream: a failed closure skips closures, tells the rank and is rethrown once") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  std::atomic<int> told{0};
  context->set_failure_handler([&](std::exception_ptr) { ++told; });
  const DeviceStream stream = on_gpu("compute");
  bool skipped = true;
  stream.enqueue("break", [] { throw std::runtime_error("broken"); });
  stream.enqueue("after", [&] { skipped = false; });
  const DeviceEvent event = stream.record();
  const std::string text = "[stream] rank 0: \"break\" failed on stream \"compute\": broken";
  CHECK(thrown<Error>([&] { event.synchronize(); }) == text);
  CHECK(thrown<Error>([&] { stream.synchronize(); }) == text);
  stream.synchronize();
  CHECK(skipped);
  CHECK(told == 1);
  context->set_failure_handler(nullptr);
}

TEST_CASE("gpu stream: CPU streams wait for a GPU, and a GPU for a CPU stream") {
  const DeviceStream gpu = on_gpu("gpu");
  for (StreamKind kind : {StreamKind::kInline, StreamKind::kQueued}) {
    const DeviceStream cpu = DeviceStream::create(kCpu, kind, "cpu");
    stream_sleep(gpu, 30);
    const DeviceEvent slept = gpu.record();
    bool ready = false;
    cpu.wait(slept);
    cpu.enqueue("look", [&] { ready = slept.is_ready(); });
    cpu.synchronize();
    CHECK(ready);
  }
  const DeviceStream cpu = DeviceStream::create(kCpu, StreamKind::kQueued, "cpu");
  std::atomic<bool> done{false};
  cpu.enqueue("slow", [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  });
  gpu.wait(cpu.record());
  CHECK(done);
}

TEST_CASE("gpu stream: many events and streams, their handles gone before their work is done") {
  const DeviceStream last = on_gpu("last");
  for (int i = 0; i < 200; ++i) {
    const DeviceStream stream = on_gpu("short");
    if (i % 20 == 0) stream_sleep(stream, 1);
    last.wait(stream.record());
  }
  last.synchronize();
}

TEST_CASE("gpu stream: witnesses outlive one of them that throws") {
  const DeviceStream stream = on_gpu("seen");
  int first = 0, second = 0;
  stream.cuda_queue().add_witness([&first] {
    if (++first == 1) throw std::runtime_error("the witness");
    return first < 3;
  });
  stream.cuda_queue().add_witness([&second] {
    ++second;
    return true;
  });
  CHECK(thrown<std::runtime_error>([&] { stream.synchronize(); }) == "the witness");
  const int before = second;
  for (int i = 0; i < 3; ++i) stream.synchronize();
  CHECK(first == 3);  // then it returned that it need not be called again
  CHECK(second == before + 3);
}

}  // namespace
}  // namespace tessera
