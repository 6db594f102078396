#pragma once

/// Ranks compare what they are about to do before any data moves.
///
///     auto group = checked(world_group);      // on every rank, once, around the whole world's
///
/// Wrong programs otherwise hang until the deadline, or mix up memory: one rank takes another
/// branch, skips a layer, gathers another dtype. In a checked group every collective first sends a
/// small record to ranks 1, 2, 4, ... places further in the group, and compares those that come
/// with its own: kind, reduction, root, dtype, the extents of all members, the rows of an
/// all_to_all, group, number, and who asks (Label). The first difference is a CollectiveError
/// that names the field, both values, and the file and line of both calls; the group is aborted
/// with that text, so every rank fails with it within the time of a message.
///
/// Records between two ranks are paired in the order of their collectives, whatever the group:
/// that is how a rank in another group is found out. So ranks that share several groups issue their
/// collectives in one order; only streams may run them in another. Exchanges between pairs are not
/// checked: the transports compare their sizes. What no message tells apart from slowness, a rank
/// that never comes, ends at the deadline as ever.
///
/// Sub-groups are checked too. Costs about log2(ranks) small messages a collective:
/// tools/bench/bench_collectives measures it.

#include <memory>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

std::shared_ptr<ProcessGroup> checked(std::shared_ptr<ProcessGroup> group);

}  // namespace tessera::distributed
