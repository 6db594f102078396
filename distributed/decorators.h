#pragma once

/// Process groups that change another one's behaviour: what tests (and users who debug) put in the
/// way of collectives. Each owns nothing but shares the group it wraps, keeps its name, rank and
/// size, and may wrap another decorator.

#include <cstdint>
#include <functional>
#include <memory>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// Calls `before` ahead of each collective; when it returns false the collective is not passed on.
std::shared_ptr<ProcessGroup> call_before(std::shared_ptr<ProcessGroup> group,
                                          std::function<bool(const Collective&)> before);

/// Sleeps `milliseconds` on the issuing stream ahead of each collective of `kind`.
std::shared_ptr<ProcessGroup> delay(std::shared_ptr<ProcessGroup> group, CollectiveKind kind,
                                    double milliseconds);

/// The n-th collective (from 1) throws CollectiveError on the issuing stream; the group is not
/// aborted by it.
std::shared_ptr<ProcessGroup> fail_at(std::shared_ptr<ProcessGroup> group, std::uint64_t n);

}  // namespace tessera::distributed
