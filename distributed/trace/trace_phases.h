#pragma once

/// The host's side of a timed trace as nested slices: see trace_events.h.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/distributed/trace/trace_event_writer.h"
#include "tessera/tensor/trace.h"

namespace tessera::distributed {

// Modules around the work of a stream: slices that nest as their paths do. See trace_events.h.

/// "a.b.c": "a", "a.b", "a.b.c"; none for "".
std::vector<std::string> module_prefixes(const std::string& path);

/// A slice that is not written yet.
struct TraceSlice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::size_t depth = 0;  ///< of slices with equal times: which is around the other
  TraceEventWriter::What what;
};

/// The depth of work, which is inside of all modules.
inline constexpr std::size_t kWorkDepth = static_cast<std::size_t>(-1);

/// Around the work of one track. Work that follows work of the same module is in the same slice.
class ModuleSlices {
 public:
  /// Slices are added to `out`.
  explicit ModuleSlices(std::vector<TraceSlice>& out) : out_(out) {}

  /// Work of the module at `path` ("": of none) runs from `begin` to `end`. Work inside of earlier
  /// work belongs to that one's module.
  void add(const std::string& path, std::int64_t begin, std::int64_t end);
  /// Closes what is open.
  void finish() { close_to(0); }

 private:
  struct Open {
    std::string path;
    std::int64_t begin;
  };
  void close_to(std::size_t depth);

  std::vector<TraceSlice>& out_;
  std::vector<Open> open_;
  std::int64_t last_end_ = 0;
};

/// Writes slices of one track in the order of their begin, the outer of two before the inner: of
/// slices that begin together viewers take the first for the outer one.
void write_slices(std::vector<TraceSlice> slices, int track, TraceEventWriter& writer);

/// The track of the rank's own thread.
inline constexpr int kHostTrack = 1;

/// Writes the annotations: those whose phase has a counterpart "<phase>_end" as slices, closed at
/// `end` if need be, the others as marks; parameter groups from unshard to reshard as spans.
/// Backward's operations are put inside slices of the modules they were recorded in.
void write_phases(const ExecutionTrace& trace, std::int64_t end, TraceEventWriter& writer,
                  int rank);

}  // namespace tessera::distributed
