#pragma once

/// What one rank does from its start to its end, the same for threads and processes, and how its
/// failure is told.

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/launch/world.h"

namespace tessera::distributed {

/// How a rank failed, and which of several failures is the one to tell.
struct RankFailure {
  int rank = -1;
  std::int64_t time_ns = 0;    ///< monotonic clock of the host, comparable between its processes
  bool echo = false;           ///< the consequence of a failure elsewhere
  std::string text{};          ///< without the rank
  std::exception_ptr error{};  ///< null when it happened in another process
};

std::int64_t monotonic_ns();

/// Describes an exception now; nested exceptions are appended to the text.
RankFailure describe_failure(int rank, const std::exception_ptr& error);

/// The earliest that is no echo, else the earliest; null for none.
const RankFailure* first_failure(const std::vector<RankFailure>& failures);

// What one rank does from its start to its end, the same for threads and processes.

struct RankSetup {
  int ranks_per_node = 0;  ///< 0: all of them are on this host
  Device device = kCpu;
  int threads = 0;  ///< that compute; 0: an equal share of this process's cores
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

/// CPU threads for each of `ranks` that share `cores` cores: an equal share, at least 1.
int threads_of_cores(int cores, int ranks);

}  // namespace tessera::distributed
