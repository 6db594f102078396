#pragma once

/// How a signal to the launcher reaches ranks that end their work in order (World::stop_signal),
/// and how these say that they did.

#include <atomic>
#include <cstdint>
#include <vector>

namespace tessera::distributed {

/// Of one rank, in memory that it and the launcher have; all zeros is a rank that has not begun.
struct StopSignal {
  std::atomic<bool> heeded{false};     ///< by the rank: signals are to be told here
  std::atomic<int> asked{0};           ///< the signal
  std::atomic<int> stopped_by{0};      ///< by the rank: it ended its work early, for this signal
  std::atomic<std::int64_t> steps{0};  ///< after so many steps

  /// The first signal stays. Usable in signal handlers.
  void ask(int signal);
};

/// Forwards the launcher's signal (SignalWatch) to the ranks, if it asks for an orderly end
/// (SIGINT, SIGTERM) and all of these ranks handle it. Returns false if the signal keeps its
/// default effect.
bool hand_on_signal(const std::vector<StopSignal*>& ranks);

/// What a run that ended early reports.
struct EarlyStop {
  int signal = 0;  ///< 0: it did not
  std::int64_t steps = 0;
};
EarlyStop early_stop_of(const std::vector<StopSignal*>& ranks);

}  // namespace tessera::distributed
