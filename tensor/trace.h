#pragma once

/// A record of everything one rank issued, in host order: the single source for event-order tests,
/// the memory ledger, counters of collectives, timelines and checkers. Written only while
/// RankContext::set_trace holds one; off, it costs one branch.
///
/// Written at *issue*: the order of records is the order of host calls, not of execution. Not
/// thread-safe: only the rank's own thread writes; read it when that thread has finished or is the
/// reader.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/shape.h"

namespace tessera {

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
  std::uint64_t sequence = 0;
  DType dtype = DType::kF32;
  std::vector<CollectiveMember> members;
  std::int64_t bytes_sent = 0;  ///< by this rank, padding included, headers not
  std::uint64_t stream = 0;
  std::string label;  ///< who asked: a parameter group's name
};

/// A point or phase in the life of a module, a parameter group ("fsdp": unshard, reshard,
/// post_backward ...), a step.
struct Annotation {
  std::string domain;
  std::string name;
  std::string phase;
};

using TraceRecord =
    std::variant<KernelRecord, EventRecord, StorageRecord, CollectiveRecord, Annotation>;

class Trace {
 public:
  void add(TraceRecord record) { records_.push_back(std::move(record)); }
  const std::vector<TraceRecord>& records() const { return records_; }
  void clear() { records_.clear(); }

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

 private:
  std::vector<TraceRecord> records_;
};

/// Adds an annotation to the active trace, if there is one.
void annotate(std::string_view domain, std::string_view name, std::string_view phase);

}  // namespace tessera
