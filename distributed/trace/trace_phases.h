#pragma once

/// The host's side of a timed trace as nested slices: see trace_events.h.

#include <cstdint>

#include "tessera/distributed/trace/trace_event_writer.h"
#include "tessera/tensor/trace.h"

namespace tessera::distributed {

/// The track of the rank's own thread.
inline constexpr int kHostTrack = 1;

/// Writes the annotations: those whose phase has a counterpart "<phase>_end" as slices, closed at
/// `end` if need be, the others as marks; parameter groups from unshard to reshard as spans.
/// Backward's operations are put inside slices of the modules they were recorded in.
void write_phases(const Trace& trace, std::int64_t end, TraceEventWriter& writer, int rank);

}  // namespace tessera::distributed
