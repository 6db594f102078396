#pragma once

/// A record of everything one rank issued, in host order: the single source for event-order tests,
/// the memory ledger, counts of collectives, timelines and checkers.
///
///     Trace trace;
///     {
///       const TraceScope recording(trace);
///       step();
///     }
///     trace.all<CollectiveRecord>();
///
/// Off, it costs one branch.
///
/// Written at *issue*: the order of records is the order of host calls, not of execution. Not
/// thread-safe: only the rank's own thread writes; read it when that thread has finished or is the
/// reader.
///
/// A *timed* trace also tells when: every record has a stamp of its issue, and every piece of work
/// that a CPU stream runs (a kernel, a copy, a collective, a wait for an event) and every wait of
/// the host has the times of its begin and end, written by the thread that runs it. Phases of
/// modules, of backward and of the optimizer's step are in timed traces only. All times are
/// nanoseconds of trace_clock(), one clock for the processes of a host. What runs on a GPU has the
/// time of its issue only.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/shape.h"

namespace tessera {

class RankContext;
class ScopeName;

/// A strided box of a storage, in elements.
struct TraceBox {
  std::uint64_t storage = 0;
  std::int64_t offset = 0;
  Shape shape;
  Shape strides;
  DType dtype = DType::kF32;
};

struct KernelRecord {
  std::string name;
  std::uint64_t stream = 0;  ///< 0: the host, which reads ("copy_to_host")
  std::vector<TraceBox> reads;
  std::vector<TraceBox> writes;
};

enum class EventAction : std::uint8_t {
  kRecord,
  kWait,
  kSynchronize,  ///< the host waited for all of `stream`; event and mark are 0, the name is the
                 ///< stream's
};
struct EventRecord {
  EventAction action;
  std::uint64_t event = 0;
  std::uint64_t mark = 0;    ///< which record of the event: counts up from 1
  std::uint64_t stream = 0;  ///< that records or waits; 0: the host
  std::string name;          ///< the event's
};

enum class StorageAction : std::uint8_t { kMaterialize, kRelease, kDetach, kFree };
struct StorageRecord {
  StorageAction action;  ///< kDetach: released, bytes still held; kFree: the bytes of a detached
                         ///< block went back
  std::uint64_t storage = 0;
  std::int64_t bytes = 0;  ///< as counted
  MemoryCategory category = MemoryCategory::kOther;
  std::string name;
};

struct CollectiveMember {
  std::int64_t elements_in = 0;
  std::int64_t elements_out = 0;
};
/// One collective; a coalesced call is ONE record with its members.
struct CollectiveRecord {
  std::string op;         ///< "all_gather", "reduce_scatter", "all_reduce", "broadcast", "barrier"
  std::string reduction;  ///< "sum" ... ; empty where there is none
  std::string group;
  int group_size = 0;
  std::vector<int> ranks;  ///< the group's, in the world
  std::uint64_t sequence = 0;
  DType dtype = DType::kF32;
  std::vector<CollectiveMember> members;
  std::int64_t bytes_sent = 0;  ///< by this rank, padding included, headers not
  std::uint64_t stream = 0;
  std::string label;  ///< who asked: a parameter group's name
};

/// A point or phase in the life of a module ("module"), a parameter group ("fsdp", whose phases
/// fsdp/runtime/annotations.h lists), a step.
struct Annotation {
  std::string domain;
  std::string name;
  std::string phase;
};

using TraceRecord =
    std::variant<KernelRecord, EventRecord, StorageRecord, CollectiveRecord, Annotation>;

/// Nanoseconds of CLOCK_MONOTONIC: the same clock in all processes of a host.
std::int64_t trace_clock();

/// When a record of a timed trace was written, and what was so at that time.
struct RecordStamp {
  std::int64_t issued = 0;  ///< trace_clock()
  /// Of storage records: bytes that the rank holds in the record's category after it.
  std::int64_t held = 0;
  std::shared_ptr<const ScopeName> scope;  ///< the part of the model; null outside
};

inline constexpr std::size_t kNoRecord = static_cast<std::size_t>(-1);

/// A piece of work of a timed trace. Its times are written by the thread that runs it.
struct TracedWork {
  std::string name;          ///< the closure's; "wait" and "synchronize"
  std::uint64_t stream = 0;  ///< that runs it; 0: the host, which waits
  /// The kernel, collective or wait that it was issued for: the latest one of the trace, or the
  /// latest collective where that has its name. One collective may take several pieces. kNoRecord
  /// before the first.
  std::size_t record = kNoRecord;
  std::size_t position = 0;            ///< records that the trace had when it was issued
  std::atomic<std::int64_t> begin{0};  ///< trace_clock(); 0: not yet
  /// 0: not yet. Work that is skipped because its stream has failed ends at once.
  std::atomic<std::int64_t> end{0};

  TracedWork(std::string work_name, std::uint64_t work_stream, std::size_t of, std::size_t at)
      : name(std::move(work_name)), stream(work_stream), record(of), position(at) {}
};

struct TraceOptions {
  bool timed = false;
  /// A timed trace keeps so many records, and pieces of work; later ones are only counted. A record
  /// with its stamp and work takes about 1 KiB.
  std::size_t max_records = 1'000'000;
};

/// A timed trace may end before the work that it records. Copies of it share the pieces of work.
class Trace {
 public:
  explicit Trace(const TraceOptions& options = {});

  bool is_timed() const { return work_ != nullptr; }
  void add(TraceRecord record) {
    if (is_timed()) return add_timed(std::move(record));
    records_.push_back(std::move(record));
  }
  const std::vector<TraceRecord>& records() const { return records_; }
  void clear();

  /// All records of one kind, in order.
  template <class Record>
  std::vector<Record> all() const {
    std::vector<Record> out;
    for (const TraceRecord& record : records_) {
      if (const Record* r = std::get_if<Record>(&record)) out.push_back(*r);
    }
    return out;
  }
  /// "phase name" of every annotation of a domain, in order: what event-order tests compare.
  std::vector<std::string> annotations(std::string_view domain) const;

  // Of timed traces.

  /// One per record.
  const std::vector<RecordStamp>& stamps() const { return stamps_; }
  /// In the order of issue. Elements stay where they are.
  const std::deque<TracedWork>& work() const;
  /// Blocks until all work issued so far has ended.
  void wait_for_work() const;
  /// The name of a stream that ran work; "" of others.
  std::string stream_name(std::uint64_t stream) const;
  /// Records and pieces of work that were left out because the trace was full.
  std::size_t dropped() const { return dropped_; }

  /// Adds a piece of work, to be timed by a WorkTimer; null when the trace is full. For streams.
  std::shared_ptr<TracedWork> add_work(const char* name, std::uint64_t stream,
                                       const std::string& stream_name);

 private:
  void add_timed(TraceRecord record);

  std::vector<TraceRecord> records_;
  std::vector<RecordStamp> stamps_;
  std::shared_ptr<std::deque<TracedWork>> work_;  // null: not timed. Work under way holds it too.
  std::map<std::uint64_t, std::string> stream_names_;
  std::size_t max_records_;
  std::size_t latest_ = kNoRecord;  // record that work may be for
  std::size_t latest_collective_ = kNoRecord;
  std::size_t dropped_ = 0;
};

/// Records what the calling thread's rank issues into `trace`, which outlives the scope; also when
/// the scope ends by an exception. A trace that was being written before goes on behind the scope.
class TraceScope {
 public:
  explicit TraceScope(Trace& trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  std::shared_ptr<RankContext> context_;
  Trace* before_;
};

/// Times a piece of work from here to the end of the scope; null: does nothing.
class WorkTimer {
 public:
  explicit WorkTimer(TracedWork* work) : work_(work) {
    if (work_ != nullptr) work_->begin.store(trace_clock(), std::memory_order_relaxed);
  }
  ~WorkTimer() {
    if (work_ != nullptr) finish(*work_);
  }
  WorkTimer(const WorkTimer&) = delete;
  WorkTimer& operator=(const WorkTimer&) = delete;

 private:
  static void finish(TracedWork& work);
  TracedWork* work_;
};

/// The calling thread's active trace where that is timed, or null.
Trace* active_timed_trace();

/// Adds an annotation to the active trace, if there is one.
void annotate(std::string_view domain, std::string_view name, std::string_view phase);

/// A phase of the host in a timed trace: annotations `phase` here and `phase` + "_end" at the end
/// of the scope. All three are literals, or live as long as it does.
class TracedPhase {
 public:
  TracedPhase(std::string_view domain, std::string_view name, std::string_view phase);
  ~TracedPhase();
  TracedPhase(const TracedPhase&) = delete;
  TracedPhase& operator=(const TracedPhase&) = delete;

 private:
  Trace* trace_;
  std::string_view domain_, name_, phase_;
};

}  // namespace tessera
