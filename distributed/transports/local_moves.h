#pragma once

/// What each rank thread copies and adds once all ranks of a local group have arrived, on any
/// device. Private to this folder.

#include <vector>

#include "tessera/distributed/resolved_collective.h"

namespace tessera::distributed {

/// The same collective as each rank means it, by rank.
using LocalCalls = std::vector<const ResolvedCollective*>;

class LocalMover;

/// The share of `rank` in moving member i: reads the peers' inputs and writes its own output; in
/// all_reduce, one range of every rank's output.
void move_member(const LocalCalls& calls, int rank, std::size_t i, LocalMover& mover);

}  // namespace tessera::distributed
