#pragma once

/// Timed traces as events of the Chrome trace format, which https://ui.perfetto.dev shows: a
/// process for each rank, with tracks
///
///     host       steps, calls of modules, backward's operations inside their modules, the
///                optimizer's step (times of issue), and every wait of the host for a stream
///     <stream>   one for each CPU stream that ran work: kernels, copies, collectives and waits for
///                events, from begin to end, inside slices of the modules that they are of.
///                What a GPU runs: a mark on the host's track at the time of its issue
///     unsharded  a span for each parameter group, from its gather to its reshard
///     memory     bytes of each category, when storages take and return them
///
/// and arrows: from the work before an event to the work that waited for it, and through the same
/// collective on all ranks.
///
/// Details of slices ("args"): of kernels module, dtype, shape and bytes, ids of the storages read
/// and written, and queued_us, the time from issue to begin; of collectives op, reduction, group,
/// ranks, sequence, label, dtype, bytes (of the whole values: the same on all ranks, but for
/// all_to_all), bytes_sent (by this rank), elements. tools/check_trace.py checks such a file.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/trace.h"

namespace tessera::distributed {

/// What the events of one rank need besides its trace. Times are the rank's own trace_clock().
struct TraceView {
  int rank = 0;
  std::string process;     ///< the name that is shown: "rank 0 of 2"
  std::int64_t shift = 0;  ///< added to all times: to the clock of all ranks, which starts at 0
  std::int64_t begin = 0;
  std::int64_t end = 0;  ///< nothing of the trace is later
  MemoryReading held{};  ///< when the trace began
};

/// One rank's part of a file.
struct RankEvents {
  std::string events;       ///< JSON objects with commas between them
  std::string collectives;  ///< packed (objects.h): where they are, for the arrows between ranks
};

/// All work of the trace must have ended; unfinished work is left out. Throws InvalidArgument for a
/// trace that is not timed.
RankEvents rank_events(const ExecutionTrace& trace, const TraceView& view);

/// The file: the events of all ranks, arrows between them, and `about`, a JSON object with whatever
/// is to be known of the whole ("otherData" of the format).
std::string trace_file(const std::vector<RankEvents>& ranks, const std::string& about);

}  // namespace tessera::distributed
