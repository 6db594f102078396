#pragma once

/// A record of everything that one rank issued, in host order: the single source for event-order
/// tests, the memory ledger, counts of collectives, timelines and checkers.
///
///     ExecutionTrace trace;
///     {
///       const TraceScope recording(trace);
///       step();
///     }
///     trace.all<CollectiveRecord>();
///
/// Tracing costs one branch when it is off.
///
/// Records are written when work is *issued*: their order is the order of host calls, not of
/// execution. Not thread-safe: only the rank's own thread writes. Read the trace on that thread, or
/// after it has finished.
///
/// A *timed* trace also has times. Every record has the time at which it was issued. Every piece of
/// work that a CPU stream runs (a kernel, a copy, a collective, a wait for an event) and every host
/// wait has its begin and end, written by the thread that runs it. Only timed traces contain the
/// phases of modules, of backward and of the optimizer's step. All times are nanoseconds of
/// trace_clock(), which all processes of a host share. Work on a GPU has only the time at which it
/// was issued.

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
  std::string operation = {};  ///< where the kernel has several: "gelu" of "unary"; else empty
  /// Of matrix products, convolutions and attention: 2 for each multiplication and its addition.
  /// 0 for other kernels.
  std::int64_t flops = 0;
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
                         ///< block were returned
  std::uint64_t storage = 0;
  std::int64_t bytes = 0;  ///< rounded up, as counted
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
  std::vector<int> ranks;  ///< the group's ranks, numbered in the world
  std::uint64_t sequence = 0;
  DType dtype = DType::kF32;
  std::vector<CollectiveMember> members;
  std::int64_t bytes_sent = 0;  ///< by this rank, with padding, without headers
  std::uint64_t stream = 0;
  std::string label;  ///< the caller's name: that of a parameter group
};

/// A point or phase of a module ("module"), of a parameter group ("fsdp";
/// fsdp/runtime/annotations.h lists its phases) or of a step.
struct TraceAnnotation {
  std::string domain;
  std::string name;
  std::string phase;
};

using TraceRecord =
    std::variant<KernelRecord, EventRecord, StorageRecord, CollectiveRecord, TraceAnnotation>;

/// Nanoseconds of CLOCK_MONOTONIC: the same clock in all processes of a host.
std::int64_t trace_clock();

/// The time at which a record of a timed trace was written, and the state at that time.
struct RecordStamp {
  std::int64_t issued = 0;  ///< trace_clock()
  /// For storage records: bytes that the rank holds in the record's category after it.
  std::int64_t held = 0;
  std::shared_ptr<const ScopeName> scope;  ///< the part of the model; null outside
};

inline constexpr std::size_t kNoRecord = static_cast<std::size_t>(-1);

/// The thread that runs a piece of work: the rank's own, or the stream's.
enum class WorkThread : std::uint8_t { kHost, kStream };

/// A piece of work of a timed trace. The thread that runs it writes the times.
struct TracedWork {
  std::string name;          ///< the closure's; "wait" and "synchronize" for waits
  std::uint64_t stream = 0;  ///< that runs it; 0: the host, which waits
  WorkThread thread = WorkThread::kHost;
  /// The record of the kernel, collective or wait that this work belongs to: the latest record of
  /// the trace, or the latest collective if that has the work's name. A collective may have several
  /// pieces of work. kNoRecord before the first record.
  std::size_t record = kNoRecord;
  std::size_t position = 0;            ///< number of records in the trace when the work was issued
  std::atomic<std::int64_t> begin{0};  ///< trace_clock(); 0: not yet
  /// 0: not yet. Work that is skipped because its stream has failed ends at once.
  std::atomic<std::int64_t> end{0};

  TracedWork(std::string work_name, std::uint64_t work_stream, WorkThread runs_on, std::size_t of,
             std::size_t at)
      : name(std::move(work_name)),
        stream(work_stream),
        thread(runs_on),
        record(of),
        position(at) {}
};

struct TraceOptions {
  bool timed = false;
  /// The largest number of records, and of pieces of work, that a timed trace keeps; later ones are
  /// only counted. A record with its stamp and work takes about 1 KiB.
  std::size_t max_records = 1'000'000;
};

/// A timed trace may be destroyed before the work that it records has ended. Copies of a trace
/// share the pieces of work.
class ExecutionTrace {
 public:
  explicit ExecutionTrace(const TraceOptions& options = {});

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
  /// "phase name" of every annotation of a domain, in order. Event-order tests compare this.
  std::vector<std::string> annotations(std::string_view domain) const;

  // For timed traces only.

  /// One per record.
  const std::vector<RecordStamp>& stamps() const { return stamps_; }
  /// In the order of issue. References to elements stay valid.
  const std::deque<TracedWork>& work() const;
  /// Blocks until all work issued so far has ended.
  void wait_for_work() const;
  /// The name of a stream that ran work; "" for other streams.
  std::string stream_name(std::uint64_t stream) const;
  /// Records and pieces of work that were left out because the trace was full.
  std::size_t dropped() const { return dropped_; }

  /// Adds a piece of work whose times a WorkTimer will write; null when the trace is full. For
  /// streams.
  std::shared_ptr<TracedWork> add_work(const char* name, std::uint64_t stream,
                                       const std::string& stream_name, WorkThread thread);

 private:
  void add_timed(TraceRecord record);

  std::vector<TraceRecord> records_;
  std::vector<RecordStamp> stamps_;
  std::shared_ptr<std::deque<TracedWork>> work_;  // null: not timed. Running work shares it.
  std::map<std::uint64_t, std::string> stream_names_;
  std::size_t max_records_;
  std::size_t latest_ = kNoRecord;  // the record that the next work may belong to
  std::size_t latest_collective_ = kNoRecord;
  std::size_t dropped_ = 0;
};

/// Records what the calling thread's rank issues into `trace`, which must outlive the scope. The
/// scope may also end by an exception. A trace that was being written before continues after the
/// scope.
class TraceScope {
 public:
  explicit TraceScope(ExecutionTrace& trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  std::shared_ptr<RankContext> context_;
  ExecutionTrace* before_;
};

/// Times a piece of work from here to the end of the scope; does nothing for null.
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

/// The calling thread's active trace if it is timed, else null.
ExecutionTrace* active_timed_trace();

/// Adds an annotation to the active trace, if there is one.
void annotate(std::string_view domain, std::string_view name, std::string_view phase);

/// A phase of the host in a timed trace: annotates `phase` here and `phase` + "_end" at the end of
/// the scope. The three strings are literals, or outlive the scope.
class TracedPhase {
 public:
  TracedPhase(std::string_view domain, std::string_view name, std::string_view phase);
  ~TracedPhase();
  TracedPhase(const TracedPhase&) = delete;
  TracedPhase& operator=(const TracedPhase&) = delete;

 private:
  ExecutionTrace* trace_;
  std::string_view domain_, name_, phase_;
};

}  // namespace tessera
