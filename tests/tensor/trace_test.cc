// Timed traces: stamps of records, begin and end of streams' work, host waits, and a trace that
// ends first or is full. Untimed traces have none of these.
#include "tessera/tensor/trace.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/scope_name.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"

namespace tessera {
namespace {

std::vector<const TracedWork*> work_of(const ExecutionTrace& trace, std::uint64_t stream) {
  std::vector<const TracedWork*> out;
  for (const TracedWork& work : trace.work()) {
    if (work.stream == stream) out.push_back(&work);
  }
  return out;
}

double milliseconds(const TracedWork& work) {
  return static_cast<double>(work.end.load() - work.begin.load()) * 1e-6;
}

TEST_CASE("trace: a scope records until its end, and what was recorded before goes on") {
  ExecutionTrace outer, inner;
  {
    const TraceScope recording(outer);
    annotate("d", "a", "outer");
    try {
      const TraceScope nested(inner);
      annotate("d", "b", "inner");
      CHECK(active_trace() == &inner);
      throw std::runtime_error("no more");
    } catch (const std::runtime_error&) {
    }
    annotate("d", "c", "outer");
  }
  annotate("d", "d", "nowhere");
  CHECK(active_trace() == nullptr);
  CHECK(outer.annotations("d") == std::vector<std::string>{"outer a", "outer c"});
  CHECK(inner.annotations("d") == std::vector<std::string>{"inner b"});
  // It belongs to the rank that opened it.
  const auto context = std::make_shared<RankContext>(1, 2, 1);
  const TraceScope recording(outer);
  {
    const RankScope scope(context);
    annotate("d", "e", "another rank");
    const TraceScope own(inner);
    annotate("d", "f", "inner");
  }
  CHECK(context->trace() == nullptr);
  CHECK(outer.annotations("d").size() == 2);
  CHECK(inner.annotations("d").back() == "inner f");
}

TEST_CASE("timed trace: a kernel is timed on the stream that runs it, inline and queued") {
  const auto kind = GENERATE(StreamKind::kInline, StreamKind::kQueued);
  const DeviceStream stream = DeviceStream::create(kCpu, kind, "mine");
  const StreamGuard guard(stream);
  ExecutionTrace trace({.timed = true});
  const std::int64_t before = trace_clock();
  {
    const TraceScope recording(trace);
    const Tensor x = Tensor::from_vector<float>({1, 2, 3}, {3});
    CHECK(add(x, x).to_vector<float>() == std::vector<float>{2, 4, 6});
  }
  trace.wait_for_work();
  const std::int64_t after = trace_clock();

  const std::vector<const TracedWork*> work = work_of(trace, stream.id());
  REQUIRE(work.size() == 2);
  CHECK(work[0]->name == "copy_from_host");
  CHECK(trace.stream_name(stream.id()) == "mine");
  std::int64_t last = before;
  for (const TracedWork* piece : work) {
    const auto& record = std::get<KernelRecord>(trace.records().at(piece->record));
    CHECK(record.name == piece->name);
    CHECK(trace.stamps().at(piece->record).issued >= before);
    CHECK(trace.stamps().at(piece->record).issued <= piece->begin);
    CHECK(last <= piece->begin);
    CHECK(piece->begin <= piece->end);
    last = piece->end;
  }
  CHECK(last <= after);
  // to_vector waits on the host.
  const std::vector<const TracedWork*> waits = work_of(trace, 0);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0]->name == "synchronize");
  CHECK(waits[0]->end >= last);
}

TEST_CASE("timed trace: work takes as long as it takes, and a wait until its event") {
  const DeviceStream slow = DeviceStream::create(kCpu, StreamKind::kQueued, "slow");
  const auto kind = GENERATE(StreamKind::kInline, StreamKind::kQueued);
  const DeviceStream waiting = DeviceStream::create(kCpu, kind, "waiting");
  ExecutionTrace trace({.timed = true});
  {
    const TraceScope recording(trace);
    stream_sleep(slow, 30);
    waiting.wait(slow.record("slept"));
    stream_sleep(waiting, 1);
    waiting.synchronize();
  }
  const std::vector<const TracedWork*> sleeps = work_of(trace, slow.id());
  REQUIRE(sleeps.size() == 1);
  CHECK(milliseconds(*sleeps[0]) >= 30);
  const std::vector<const TracedWork*> after = work_of(trace, waiting.id());
  REQUIRE(after.size() == 2);
  CHECK(after[0]->name == "wait");
  CHECK(after[0]->end >= sleeps[0]->end);
  CHECK(after[1]->begin >= after[0]->end);
  const auto& record = std::get<EventRecord>(trace.records().at(after[0]->record));
  CHECK(record.action == EventAction::kWait);
  CHECK(record.name == "slept");
}

TEST_CASE("timed trace: storages stamp what is held, records the part of the model") {
  const std::shared_ptr<ScopeName> root = make_scope_name();
  const std::shared_ptr<ScopeName> part = make_scope_name();
  part->set("up", root);
  MemoryCounters& memory = current_rank_context()->memory();
  const std::int64_t held = memory.current()[MemoryCategory::kGathered];
  ExecutionTrace trace({.timed = true});
  {
    const TraceScope recording(trace);
    const NamedScope scope(*part);
    const MemoryCategoryScope category(MemoryCategory::kGathered);
    const Tensor x = zeros({100});
    const Tensor y = zeros({16});
  }
  std::vector<std::int64_t> after;
  for (std::size_t i = 0; i < trace.records().size(); ++i) {
    const RecordStamp& stamp = trace.stamps().at(i);
    REQUIRE(stamp.scope != nullptr);
    CHECK(stamp.scope->path() == "up");
    if (std::holds_alternative<StorageRecord>(trace.records()[i]))
      after.push_back(stamp.held - held);
  }
  CHECK(after == std::vector<std::int64_t>{448, 512, 448, 0});
}

TEST_CASE("timed trace: it may end before its work") {
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "late");
  std::atomic<bool> go{false};
  std::atomic<bool> ran{false};
  {
    ExecutionTrace trace({.timed = true});
    const TraceScope recording(trace);
    stream.enqueue("late", [&] {
      go.wait(false);
      ran = true;
    });
    CHECK(trace.work().size() == 1);
    CHECK(trace.work()[0].end == 0);
  }
  go = true;
  go.notify_all();
  stream.synchronize();
  CHECK(ran);
}

TEST_CASE("timed trace: work that a failed stream skips ends too") {
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "failing");
  ExecutionTrace trace({.timed = true});
  {
    const TraceScope recording(trace);
    stream.enqueue("throws", [] { throw std::runtime_error("broken"); });
    stream.enqueue("skipped", [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
    CHECK_THROWS(stream.synchronize());
  }
  trace.wait_for_work();
  const std::vector<const TracedWork*> work = work_of(trace, stream.id());
  REQUIRE(work.size() == 2);
  CHECK(milliseconds(*work[1]) < 500);
}

TEST_CASE("timed trace: a full one counts what it leaves out") {
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kInline, "mine");
  ExecutionTrace trace({.timed = true, .max_records = 3});
  {
    const TraceScope recording(trace);
    for (int i = 0; i < 5; ++i) stream_sleep(stream, 0);
  }
  CHECK(trace.records().size() == 3);
  CHECK(trace.stamps().size() == 3);
  CHECK(trace.work().size() == 3);
  CHECK(trace.dropped() == 4);
  trace.clear();
  CHECK(trace.work().empty());
  CHECK(trace.dropped() == 0);
}

TEST_CASE("timed trace: phases come in pairs, in timed traces only") {
  const auto phases = [](ExecutionTrace& trace) {
    const TraceScope recording(trace);
    const TracedPhase outer("a", "x", "run");
    const TracedPhase inner("a", "y", "run");
  };
  ExecutionTrace timed({.timed = true});
  phases(timed);
  CHECK(timed.annotations("a") ==
        std::vector<std::string>{"run x", "run y", "run_end y", "run_end x"});
  ExecutionTrace plain;
  phases(plain);
  CHECK(plain.records().empty());
}

TEST_CASE("untimed trace: no stamps, no work") {
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    CHECK(sum(zeros({3})).item<float>() == 0);
    CHECK(active_timed_trace() == nullptr);
  }
  CHECK_FALSE(trace.is_timed());
  CHECK_FALSE(trace.records().empty());
  CHECK(trace.stamps().empty());
  CHECK(trace.work().empty());
  trace.wait_for_work();
}

}  // namespace
}  // namespace tessera
