#pragma once

/// What one rank does from its start to its end, the same for threads and processes.

#include <functional>
#include <memory>
#include <optional>

#include "tessera/distributed/launch/rank_failure.h"
#include "tessera/distributed/launch/world.h"

namespace tessera::distributed {

struct RankSetup {
  int ranks_per_node = 0;  ///< 0: all of them are on this host
  Device device = kCpu;
  StreamKind cpu_compute = StreamKind::kInline;
  std::shared_ptr<StopSignal> stop{};  ///< the world's
  bool checked = false;                ///< the world's group is a checked one
  /// Told of the failure that counts, at once, on whatever thread it happens; again when a cause
  /// replaces an echo.
  std::function<void(const RankFailure&)> on_failure{};
};

/// Runs `body` on the calling thread as the rank of `group`: under a context of its own, with the
/// compute stream installed; tensors whose maker names no device are of setup.device. Afterwards it
/// waits for that stream, and for the device's. A failure, also one on a stream's worker, aborts
/// the group and is returned.
std::optional<RankFailure> run_rank(const RankSetup& setup,
                                    const std::shared_ptr<ProcessGroup>& group,
                                    const std::function<void(World&)>& body);

/// CPU threads for each of `ranks` on this host: an equal share, at least 1.
int threads_per_rank(int ranks);

}  // namespace tessera::distributed
