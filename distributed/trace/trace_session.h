#pragma once

/// A picture of some steps of all ranks on one clock, as a Chrome trace: a file that
/// https://ui.perfetto.dev and chrome://tracing show.
///
///     TraceSession session(world, {.path = "runs/a/trace.json", .first_step = 3, .steps = 3});
///     for (std::int64_t step = 0; step < steps; ++step) {
///       session.begin_step(step);
///       ...
///     }
///     session.end();
///
/// From the beginning of `first_step` on, each rank writes a timed ExecutionTrace. When `steps` steps are
/// over, or at end(), rank 0 gathers them over the world's group and writes the file. What is in
/// it: see trace_events.h. Offsets of clocks between hosts are measured (clock_offset.h).
///
/// Memory: each rank keeps at most max_records records, of about 1 KiB, and its part of the file,
/// of about 300 bytes a record; rank 0 has all parts at once while it writes. What did not fit is
/// counted in the file ("dropped"), not kept.
///
/// Used by the thread of its rank. On every rank with equal options, and the calls are collective:
/// a rank that leaves its session out lets the others wait. A session that is destroyed before its
/// end(), on all ranks alike, stops tracing and writes nothing.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tessera/distributed/launch/world.h"

namespace tessera::distributed {

struct TraceSessionOptions {
  std::string path;             ///< the file; its folder must exist
  std::int64_t first_step = 3;  ///< the first ones allocate and warm up
  std::int64_t steps = 3;
  std::size_t max_records = 250'000;  ///< of each rank
};

class TraceSession {
 public:
  /// Throws InvalidArgument for an empty path, a negative first step, and no steps or records.
  TraceSession(const World& world, TraceSessionOptions options);
  ~TraceSession();
  TraceSession(const TraceSession&) = delete;
  TraceSession& operator=(const TraceSession&) = delete;

  /// Before each step, with growing numbers. Where tracing begins or ends here, the ranks wait for
  /// each other and for their own streams. Throws StateError when tracing is to begin and the rank
  /// writes another trace, and what writing throws, see end().
  void begin_step(std::int64_t step);
  /// After the last step: writes what was traced, unless that is written. Nothing where the run did
  /// not reach first_step. When the file cannot be written every rank throws CheckpointError.
  void end();

  bool is_tracing() const;
  /// True on all ranks once the file is there.
  bool is_written() const;

 private:
  struct State;
  void start();
  void finish();
  std::unique_ptr<State> state_;
};

}  // namespace tessera::distributed
