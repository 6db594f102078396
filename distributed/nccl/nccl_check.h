#pragma once

/// Private to this folder.

struct ncclComm;

namespace tessera::distributed {

/// Nothing for success and for a call that is under way; else throws NcclFailure. `what` is the
/// call that failed, `communicator` may be null.
void check_nccl(int code, const char* what, ncclComm* communicator);

}  // namespace tessera::distributed
