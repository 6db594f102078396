#pragma once

/// How far the clocks of the ranks are apart, measured by messages between them.
///
/// Rank 0 of the group asks every other rank for its time, several times. Of the quickest exchange
/// it takes that the peer's clock was read in the middle, which is wrong by at most half of its
/// round trip (D. L. Mills, RFC 5905, section 8). An offset that is not larger than that cannot be
/// told from none and is taken as 0: so ranks of one host, which share CLOCK_MONOTONIC, get 0.

#include <cstdint>
#include <functional>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

struct ClockOffset {
  std::int64_t nanoseconds = 0;  ///< this rank's clock + this = the clock of the group's rank 0
  std::int64_t uncertainty = 0;  ///< the error is at most this, or twice this where the offset is 0
};

/// `clock` returns nanoseconds. Collective; the host waits. 0 on rank 0. Throws what messages
/// throw.
ClockOffset measure_clock_offset(ProcessGroup& group, const std::function<std::int64_t()>& clock);

}  // namespace tessera::distributed
