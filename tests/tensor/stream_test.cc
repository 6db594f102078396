#include "tessera/tensor/streams/stream.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

DeviceStream queued(const std::string& name) {
  return DeviceStream::create(kCpu, StreamKind::kQueued, name);
}
DeviceStream inlined(const std::string& name) {
  return DeviceStream::create(kCpu, StreamKind::kInline, name);
}

TEST_CASE("stream: identity") {
  const DeviceStream a = queued("gather");
  const DeviceStream b = inlined("compute");
  CHECK(a.id() != b.id());
  CHECK(a.id() > 0);
  CHECK(a.name() == "gather");
  CHECK(a.device() == kCpu);
  CHECK(a.kind() == StreamKind::kQueued);
  CHECK(b.kind() == StreamKind::kInline);
  const DeviceStream copy = a;
  CHECK(copy == a);
  CHECK_FALSE(a == b);
  CHECK_FALSE(DeviceStream().defined());
  CHECK(thrown<StateError>([] { DeviceStream().synchronize(); }) ==
        "[stream] this handle holds no stream; make one with Stream::create");
  CHECK(thrown<StateError>([&] { a.cuda_handle(); }) ==
        "[stream.cuda_handle] stream \"gather\" is of device cpu, not of a GPU");
}

TEST_CASE("stream: on a GPU that is not there") {
  const std::string why =
      kBuiltWithCuda
          ? fmt::format(
                "this process sees {} GPU{}; use the cpu device, or look at nvidia-smi and "
                "CUDA_VISIBLE_DEVICES",
                cuda_device_count(), cuda_device_count() == 1 ? "" : "s")
          : "this build has no CUDA; use the cpu device, or build where the CUDA toolkit is "
            "installed";
  CHECK(thrown<DeviceError>([] {
          DeviceStream::create({DeviceType::kCuda, 63}, StreamKind::kQueued, "x");
        }) == "[stream.create] cuda:63 cannot run \"x\": " + why);
  CHECK(thrown<DeviceError>([] {
          current_stream({DeviceType::kCuda, 63});
        }) == "[stream.create] cuda:63 cannot run \"default\": " + why);
  const DeviceStream null = DeviceStream::create(kNull, StreamKind::kInline, "n");
  CHECK(thrown<StateError>([&] { null.cuda_queue(); }) ==
        "[stream.cuda_handle] stream \"n\" is of device null, not of a GPU");
}

TEST_CASE("stream: an inline one runs on the caller at once and throws") {
  const DeviceStream stream = inlined("compute");
  std::thread::id ran_on;
  stream.enqueue("look", [&] { ran_on = std::this_thread::get_id(); });
  CHECK(ran_on == std::this_thread::get_id());
  CHECK(thrown<StateError>([&] { stream.enqueue("fail", [] { throw StateError("boom"); }); }) ==
        "boom");
  int runs = 0;
  stream.enqueue("next", [&] { ++runs; });
  stream.synchronize();
  CHECK(runs == 1);
  CHECK(stream.record().is_ready());
}

TEST_CASE("stream: a queued one runs in order on one thread while the host goes on") {
  const DeviceStream stream = queued("compute");
  std::atomic<bool> go{false};
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  stream.enqueue("hold", [&] {
    while (!go) std::this_thread::yield();
  });
  for (int i = 0; i < 500; ++i) {
    stream.enqueue("append", [&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  }
  const DeviceEvent end = stream.record("end");
  CHECK_FALSE(end.is_ready());
  go = true;
  stream.synchronize();
  CHECK(end.is_ready());
  REQUIRE(order.size() == 500);
  bool in_order = true;
  for (int i = 0; i < 500; ++i) in_order = in_order && order[static_cast<std::size_t>(i)] == i;
  CHECK(in_order);
  CHECK(std::count(threads.begin(), threads.end(), threads.front()) == 500);
  CHECK(threads.front() != std::this_thread::get_id());
}

TEST_CASE("stream: closures run under the issuer's rank context, and write no trace") {
  const DeviceStream stream = queued("compute");
  ExecutionTrace trace;
  const auto context = std::make_shared<RankContext>(6, 8, 1);
  int rank = 0;
  bool traces = true;
  {
    const RankScope scope(context);
    context->set_trace(&trace);
    stream.enqueue("look", [&] {
      rank = current_rank_context()->rank();
      traces = active_trace() != nullptr;
      annotate("d", "n", "p");
    });
  }
  int outside = 0;
  stream.enqueue("look", [&] { outside = current_rank_context()->rank(); });
  stream.synchronize();
  CHECK(rank == 6);
  CHECK_FALSE(traces);
  CHECK(outside == -1);
  CHECK(trace.records().empty());
}

TEST_CASE("event: errors of one that was never recorded") {
  const DeviceStream stream = queued("compute");
  const DeviceEvent event("gathered");
  CHECK_FALSE(event.is_recorded());
  CHECK(thrown<StateError>([&] { stream.wait(event); }) ==
        "[stream.wait] stream \"compute\" waits for event \"gathered\", which was never recorded; "
        "record it first");
  CHECK(thrown<StateError>([&] { (void)event.is_ready(); }) ==
        "[event.is_ready] event \"gathered\" was never recorded; record it first");
  CHECK(thrown<StateError>([&] { event.synchronize(); }) ==
        "[event.synchronize] event \"gathered\" was never recorded; record it first");
  CHECK(thrown<StateError>([&] { inlined("i").wait(event); }).find("never recorded") !=
        std::string::npos);
}

TEST_CASE("event: a wait binds to the mark at the time of the call") {
  const DeviceStream producer = queued("producer");
  const DeviceStream consumer = queued("consumer");
  std::atomic<bool> second_may_run{false};
  DeviceEvent event("mark");
  producer.enqueue("first", [] {});
  event.record(producer);
  consumer.wait(event);  // the first mark
  producer.enqueue("second", [&] {
    while (!second_may_run) std::this_thread::yield();
  });
  event.record(producer);
  consumer.synchronize();  // would hang if the wait had followed the second record
  CHECK_FALSE(event.is_ready());
  second_may_run = true;
  event.synchronize();
  CHECK(event.is_ready());
}

TEST_CASE("event: an inline stream waits on the host") {
  const DeviceStream producer = queued("producer");
  const DeviceStream compute = inlined("compute");
  std::atomic<int> value{0};
  producer.enqueue("slow", [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    value = 7;
  });
  compute.wait(producer.record("done"));
  CHECK(value == 7);
}

// Two streams take turns updating one plain counter; every update must see the previous one.
TEST_CASE("event: order between streams under load") {
  const DeviceStream a = queued("a");
  const DeviceStream b = queued("b");
  constexpr int kRounds = 3000;
  int counter = 0;
  int errors = 0;
  const auto step = [&](int expected) {
    if (counter != expected) ++errors;
    ++counter;
  };
  for (int i = 0; i < kRounds; ++i) {
    a.enqueue("even", [&, i] { step(2 * i); });
    b.wait(a.record());
    b.enqueue("odd", [&, i] { step(2 * i + 1); });
    a.wait(b.record());
  }
  a.synchronize();
  CHECK(errors == 0);
  CHECK(counter == 2 * kRounds);
}

TEST_CASE("event: one event used by many streams and recorded again and again") {
  const DeviceStream source = queued("source");
  std::vector<DeviceStream> sinks;
  for (int i = 0; i < 4; ++i) sinks.push_back(queued("sink" + std::to_string(i)));
  std::atomic<int> produced{0};
  std::atomic<int> too_early{0};
  DeviceEvent event("produced");
  for (int i = 1; i <= 300; ++i) {
    source.enqueue("produce", [&, i] { produced = i; });
    event.record(source);
    for (const DeviceStream& sink : sinks) {
      sink.wait(event);
      sink.enqueue("check", [&, i] {
        if (produced < i) ++too_early;
      });
    }
  }
  for (const DeviceStream& sink : sinks) sink.synchronize();
  CHECK(too_early == 0);
}

TEST_CASE("stream: destruction finishes the work") {
  int runs = 0;
  {
    const DeviceStream stream = queued("short");
    for (int i = 0; i < 100; ++i) stream.enqueue("count", [&] { ++runs; });
  }
  CHECK(runs == 100);
}

TEST_CASE("stream: the last handle may die on the stream's own worker") {
  for (int i = 0; i < 50; ++i) {
    DeviceStream stream = queued("self");
    std::atomic<int> runs{0};
    const DeviceEvent event = [&] {
      stream.enqueue("hold the handle", [stream, &runs] { ++runs; });
      stream.enqueue("after", [&runs] { ++runs; });
      return stream.record("end");
    }();
    stream = DeviceStream();
    event.synchronize();
    CHECK(runs == 2);
  }
}

TEST_CASE("stream: many streams come and go") {
  std::atomic<int> runs{0};
  for (int i = 0; i < 100; ++i) {
    const DeviceStream a = queued("a");
    const DeviceStream b = queued("b");
    a.enqueue("count", [&] { ++runs; });
    b.wait(a.record());
    b.enqueue("count", [&] { ++runs; });
  }
  CHECK(runs == 200);
}

TEST_CASE("stream: a closure that waits for its own stream is told so") {
  const DeviceStream stream = queued("self");
  stream.enqueue("wait for itself", [stream] { stream.synchronize(); });
  CHECK(thrown<StateError>([&] { stream.synchronize(); }) ==
        "[stream.synchronize] stream \"self\" would wait for itself: call it outside of its "
        "closures");
}

TEST_CASE("stream: on the null device work is dropped and events are ready") {
  for (StreamKind kind : {StreamKind::kInline, StreamKind::kQueued}) {
    const DeviceStream stream = DeviceStream::create(kNull, kind, "planned");
    int runs = 0;
    stream.enqueue("never", [&] { ++runs; });
    const DeviceEvent event = stream.record("e");
    CHECK(event.is_ready());
    const DeviceStream cpu = queued("cpu");
    cpu.wait(event);
    stream.wait(cpu.record());
    event.synchronize();
    stream.synchronize();
    stream_sleep(stream, 10000);
    CHECK(runs == 0);
    CHECK(stream.kind() == kind);
  }
}

TEST_CASE("current stream: per thread and device, with guards") {
  const DeviceStream before = current_stream(kCpu);
  CHECK(before.name() == "default");
  CHECK(before.kind() == StreamKind::kInline);
  CHECK(current_stream(kNull).device() == kNull);
  std::uint64_t elsewhere = before.id();
  std::thread([&] { elsewhere = current_stream(kCpu).id(); }).join();
  CHECK(elsewhere != before.id());
  const DeviceStream stream = queued("compute");
  {
    const StreamGuard guard(stream);
    CHECK(current_stream(kCpu) == stream);
    CHECK(current_stream(kNull).name() == "default");
    {
      const StreamGuard inner(inlined("inner"));
      CHECK(current_stream(kCpu).name() == "inner");
    }
    CHECK(current_stream(kCpu) == stream);
  }
  CHECK(current_stream(kCpu) == before);
}

TEST_CASE("stream_sleep: takes its time on the stream") {
  using Clock = std::chrono::steady_clock;
  const DeviceStream stream = queued("compute");
  const auto start = Clock::now();
  stream_sleep(stream, 30);
  CHECK(Clock::now() - start < std::chrono::milliseconds(25));
  stream.synchronize();
  CHECK(Clock::now() - start >= std::chrono::milliseconds(30));
  stream_sleep(inlined("i"), 5);
  CHECK(Clock::now() - start >= std::chrono::milliseconds(35));
  CHECK(thrown<InvalidArgument>([&] { stream_sleep(stream, -1); }) ==
        "[stream_sleep] cannot sleep -1 ms; give 0 or more");
}

TEST_CASE("stream_sleep: who waits for an event recorded after it runs later") {
  const DeviceStream slow = queued("slow");
  const DeviceStream waiting = queued("waiting");
  std::atomic<bool> woke = false;
  stream_sleep(slow, 20);
  slow.enqueue("wake", [&] { woke = true; });
  waiting.wait(slow.record("awake"));
  bool seen = false;
  waiting.enqueue("look", [&] { seen = woke; });
  waiting.synchronize();
  CHECK(seen);
}

TEST_CASE("stream: the trace has records, waits and host waits in issue order") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  const DeviceStream a = queued("a");
  const DeviceStream b = inlined("b");
  ExecutionTrace trace;
  context->set_trace(&trace);
  DeviceEvent event("ready");
  event.record(a);
  event.record(a);
  b.wait(event);
  event.synchronize();
  a.synchronize();
  stream_sleep(b, 0);
  context->set_trace(nullptr);
  const auto events = trace.all<EventRecord>();
  REQUIRE(events.size() == 5);
  const auto is = [&](std::size_t i, EventAction action, std::uint64_t mark, std::uint64_t stream) {
    return events[i].action == action && events[i].mark == mark && events[i].stream == stream;
  };
  CHECK(is(0, EventAction::kRecord, 1, a.id()));
  CHECK(is(1, EventAction::kRecord, 2, a.id()));
  CHECK(is(2, EventAction::kWait, 2, b.id()));
  CHECK(is(3, EventAction::kWait, 2, 0));
  CHECK(is(4, EventAction::kSynchronize, 0, a.id()));
  CHECK(events[0].event == event.id());
  CHECK(events[2].name == "ready");
  CHECK(events[4].name == "a");
  const auto kernels = trace.all<KernelRecord>();
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0].name == "stream_sleep");
  CHECK(kernels[0].stream == b.id());
}

}  // namespace
}  // namespace tessera
