#pragma once

/// The streams' side of a timed trace: slices of work with their details, and arrows along events.
/// See trace_events.h.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/distributed/trace/trace_event_writer.h"
#include "tessera/tensor/trace.h"

namespace tessera::distributed {

/// The work of a trace by stream, in the order of issue. Refers to the trace.
class StreamTracks {
 public:
  explicit StreamTracks(const ExecutionTrace& trace);

  struct Track {
    int number = 0;
    std::string name;
    std::vector<const TracedWork*> work;  // that ran
  };
  /// By stream; the host's own waits are stream 0.
  const std::map<std::uint64_t, Track>& all() const { return tracks_; }

  /// The last work that `stream` got before the trace's `record`, and the first behind it; null
  /// where there is none.
  const TracedWork* before(std::uint64_t stream, std::size_t record) const;
  const TracedWork* behind(std::uint64_t stream, std::size_t record) const;

 private:
  std::map<std::uint64_t, Track> tracks_;
};

/// A collective of one rank.
struct TracedCollective {
  std::string key;  ///< the same on all ranks that take part
  int track = 0;
  std::int64_t begin = 0;  ///< as written, nanoseconds
};

/// Writes all work, marks for kernels that no CPU stream ran, and arrows from the work before an
/// event to the work that waited for it. Returns the collectives, except those between two ranks
/// only.
std::vector<TracedCollective> write_work(const ExecutionTrace& trace, TraceEventWriter& writer,
                                         int rank);

}  // namespace tessera::distributed
