#pragma once

/// The number of collectives that a rank issued while a trace was written, and the bytes that it
/// sent with them: by kind, group, and label.
///
///     ExecutionTrace trace;
///     {
///       const TraceScope recording(trace);
///       step();
///     }
///     const CollectiveCounts counts(trace);
///     counts.of({.op = "all_gather"}).collectives
///     counts.of({.op = "reduce_scatter", .label = "blocks.3"}).bytes_sent
///     std::puts(counts.str().c_str());
///
/// A coalesced collective is one. Messages of an exchange count as "send", "recv" or "exchange".
/// For totals since the beginning, without a trace: collective_counters().

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/trace.h"

namespace tessera::distributed {

/// Which collectives: "" stands for any.
struct CollectiveFilter {
  std::string op = {};     ///< "all_gather", "reduce_scatter", ...; see collective_name()
  std::string group = {};  ///< the process group's name
  std::string label = {};  ///< of the caller: with fsdp, the parameter group's name
  /// Also those in groups of one rank, which communicate nothing.
  bool alone = false;
};

class CollectiveCounts {
 public:
  /// Those that are equal in all four.
  struct Row {
    std::string op;
    std::string group;
    std::string label;
    int group_size = 0;
    std::int64_t collectives = 0;
    std::int64_t bytes_sent = 0;  ///< by this rank, padding included, headers not
  };

  explicit CollectiveCounts(const ExecutionTrace& trace);

  /// In the order in which they were first issued.
  const std::vector<Row>& rows() const& { return rows_; }
  std::vector<Row> rows() && { return std::move(rows_); }
  CollectiveCounters of(const CollectiveFilter& filter = {}) const;
  /// A line for each row: "2 all_gather of world (blocks.3): 1024 bytes". Without groups of one
  /// rank.
  std::string str() const;

 private:
  std::vector<Row> rows_;
};

}  // namespace tessera::distributed
