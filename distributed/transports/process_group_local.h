#pragma once

/// Ranks as threads of one process: collectives read the peers' memory directly. On the CPU, and in
/// builds with CUDA on GPUs, one for all ranks or several.
///
/// With tensors on a GPU a call returns when all ranks of the group have made it (a send: when it
/// is being received), and what it issued runs in the order of the ranks' streams; the host waits
/// for no GPU. So ranks issue in one order on all streams, and what goes wrong between them is
/// thrown here.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// One group per rank, in rank order; each is used by the thread of its rank. A wait for a peer
/// that takes longer than `timeout` fails. A rank that destroys its group has left as soon as the
/// work that it queued there is done: a rank that still needs it fails at once. If an exception
/// destroys the group, the group is aborted: the exception is the cause, and failures of other
/// ranks follow from it.
std::vector<std::shared_ptr<ProcessGroup>> make_local_groups(
    const std::string& name, int size, std::chrono::milliseconds timeout = kDefaultTimeout);

}  // namespace tessera::distributed
