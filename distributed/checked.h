#pragma once

/// Ranks compare what they are about to do before any data moves.
///
///     auto group = checked(world_group);      // on every rank, once, around the whole world's
///
/// Without it, wrong programs hang until the deadline, or mix up memory: one rank takes another
/// branch, skips a layer, gathers another dtype. In a checked group every collective first sends a
/// small record to the ranks 1, 2, 4, ... further in the group, and compares the records that it
/// receives with its own: kind, reduction, root, dtype, the extents of all members, the rows of an
/// all_to_all, group, number, and the caller's Label. The first difference is a CollectiveError
/// that names the field, both values, and the file and line of both calls. The group is aborted
/// with that text, so every rank fails with it within the time of a message.
///
/// Records between two ranks are paired in the order of their collectives, whatever the group: this
/// detects a rank that is in another group. So ranks that share several groups issue their
/// collectives in one order; only streams may run them in another. Exchanges between pairs are not
/// checked: the transports compare their sizes. A rank that never comes cannot be told from a slow
/// one; the deadline ends that wait.
///
/// Sub-groups are checked too. Costs about log2(ranks) small messages a collective:
/// tools/bench/bench_collectives measures it.
/// tools/bench/bench_collectives measures it.

#include <memory>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

std::shared_ptr<ProcessGroup> checked(std::shared_ptr<ProcessGroup> group);

}  // namespace tessera::distributed
