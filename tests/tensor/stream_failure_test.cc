// The effect of a failing closure on its stream, on streams that wait for it, and on the rank.

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>

#include "tessera/tensor/error.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

DeviceStream queued(const std::string& name) {
  return DeviceStream::create(kCpu, StreamKind::kQueued, name);
}

void fail_with(const DeviceStream& stream, const std::string& text) {
  stream.enqueue("fail", [text] { throw DataError(text); });
}

TEST_CASE("poison: later closures are skipped, the first failure is rethrown once") {
  const DeviceStream stream = queued("compute");
  std::atomic<int> runs{0};
  stream.enqueue("before", [&] { ++runs; });
  fail_with(stream, "first");
  stream.enqueue("skipped", [&] { ++runs; });
  fail_with(stream, "second");
  CHECK(thrown<DataError>([&] { stream.synchronize(); }) == "first");
  CHECK(runs == 1);
  stream.synchronize();
  stream.enqueue("after", [&] { ++runs; });
  stream.synchronize();
  CHECK(runs == 2);
  fail_with(stream, "third");
  CHECK(thrown<DataError>([&] { stream.synchronize(); }) == "third");
}

TEST_CASE("poison: events fire and carry the error, as often as they are asked") {
  const DeviceStream stream = queued("compute");
  const DeviceEvent before = stream.record("before");
  fail_with(stream, "boom");
  const DeviceEvent after = stream.record("after");
  before.synchronize();
  CHECK(thrown<DataError>([&] { after.synchronize(); }) == "boom");
  CHECK(after.is_ready());
  CHECK(thrown<DataError>([&] { after.synchronize(); }) == "boom");
  CHECK(thrown<DataError>([&] { stream.synchronize(); }) == "boom");
  const DeviceEvent clean = stream.record("clean");
  clean.synchronize();
  CHECK(thrown<DataError>([&] { after.synchronize(); }) == "boom");
}

TEST_CASE("poison: spreads to streams that wait, along a chain") {
  const DeviceStream a = queued("a");
  const DeviceStream b = queued("b");
  const DeviceStream c = queued("c");
  const DeviceStream other = queued("other");
  std::atomic<int> runs{0};
  fail_with(a, "boom");
  b.enqueue("before the wait", [&] { ++runs; });
  b.wait(a.record());
  b.enqueue("skipped", [&] { runs += 100; });
  c.wait(b.record());
  c.enqueue("skipped", [&] { runs += 100; });
  other.enqueue("unrelated", [&] { ++runs; });
  CHECK(thrown<DataError>([&] { c.synchronize(); }) == "boom");
  CHECK(thrown<DataError>([&] { b.synchronize(); }) == "boom");
  CHECK(thrown<DataError>([&] { a.synchronize(); }) == "boom");
  other.synchronize();
  CHECK(runs == 2);
}

TEST_CASE("poison: a stream keeps its own failure when it waits for another") {
  const DeviceStream a = queued("a");
  const DeviceStream b = queued("b");
  fail_with(a, "of a");
  fail_with(b, "of b");
  b.wait(a.record());
  const DeviceEvent end = b.record();
  CHECK(thrown<DataError>([&] { end.synchronize(); }) == "of b");
  CHECK(thrown<DataError>([&] { b.synchronize(); }) == "of b");
  CHECK(thrown<DataError>([&] { a.synchronize(); }) == "of a");
}

TEST_CASE("poison: a poisoned stream still waits before its events fire") {
  const DeviceStream slow = queued("slow");
  const DeviceStream stream = queued("compute");
  std::atomic<bool> slow_ran{false};
  fail_with(stream, "boom");
  slow.enqueue("slow", [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    slow_ran = true;
  });
  stream.wait(slow.record());
  const DeviceEvent end = stream.record();
  CHECK(thrown<DataError>([&] { end.synchronize(); }) == "boom");
  CHECK(slow_ran);
  CHECK(thrown<DataError>([&] { stream.synchronize(); }) == "boom");
}

TEST_CASE("poison: an inline stream that waits throws and is not poisoned") {
  const DeviceStream a = queued("a");
  const DeviceStream compute = DeviceStream::create(kCpu, StreamKind::kInline, "compute");
  fail_with(a, "boom");
  const DeviceEvent event = a.record();
  CHECK(thrown<DataError>([&] { compute.wait(event); }) == "boom");
  int runs = 0;
  compute.enqueue("goes on", [&] { ++runs; });
  compute.synchronize();
  compute.record().synchronize();
  CHECK(runs == 1);
  CHECK(thrown<DataError>([&] { a.synchronize(); }) == "boom");
}

TEST_CASE("poison: the rank's failure handler hears of the first failure, once, before the host") {
  const auto context = std::make_shared<RankContext>(2, 4, 1);
  std::atomic<int> calls{0};
  std::atomic<int> rank{0};
  std::atomic<bool> first{false};
  context->set_failure_handler([&](std::exception_ptr error) {
    ++calls;
    rank = current_rank_context()->rank();
    first = thrown<DataError>([&] { std::rethrow_exception(error); }) == "first";
  });
  const DeviceStream a = queued("a");
  const DeviceStream b = queued("b");
  {
    const RankScope scope(context);
    fail_with(a, "first");
    fail_with(a, "second");
    b.wait(a.record());
  }
  CHECK(thrown<DataError>([&] { b.synchronize(); }) == "first");
  CHECK(calls == 1);
  CHECK(rank == 2);
  CHECK(first);
  CHECK(thrown<DataError>([&] { a.synchronize(); }) == "first");
}

TEST_CASE("poison: exceptions of others arrive named, with the original inside") {
  const DeviceStream stream = queued("compute");
  stream.enqueue("gelu", [] { throw std::out_of_range("index 7"); });
  CHECK(thrown<Error>([&] { stream.synchronize(); }) ==
        "[stream] \"gelu\" failed on stream \"compute\": index 7");
  stream.enqueue("gelu", [] { throw std::out_of_range("index 8"); });
  std::string inner;
  try {
    stream.synchronize();
  } catch (const Error& error) {
    inner = thrown<std::out_of_range>([&] { std::rethrow_if_nested(error); });
  }
  CHECK(inner == "index 8");
  const RankScope scope(std::make_shared<RankContext>(1, 2, 1));
  stream.enqueue("odd", [] { throw 7; });
  CHECK(thrown<Error>([&] { stream.synchronize(); }) ==
        "[stream] rank 1: \"odd\" failed on stream \"compute\": an exception that is not a "
        "std::exception");
}

TEST_CASE("poison: destroying a poisoned stream does not throw") {
  DeviceEvent event("end");
  {
    const DeviceStream stream = queued("compute");
    fail_with(stream, "boom");
    event.record(stream);
  }
  CHECK(event.is_ready());
  CHECK(thrown<DataError>([&] { event.synchronize(); }) == "boom");
}

TEST_CASE("poison: many failures under load neither hang nor leak into later work") {
  const DeviceStream a = queued("a");
  const DeviceStream b = queued("b");
  int good = 0;
  for (int i = 0; i < 300; ++i) {
    if (i % 3 == 0) fail_with(a, "boom");
    a.enqueue("work", [] {});
    b.wait(a.record());
    b.enqueue("count", [&] { ++good; });
    const bool failed = thrown<DataError>([&] { b.synchronize(); }) == "boom";
    const bool failed_source = thrown<DataError>([&] { a.synchronize(); }) == "boom";
    if (failed != (i % 3 == 0) || failed_source != failed) good = -1000;
  }
  CHECK(good == 200);
}

}  // namespace
}  // namespace tessera
