#pragma once

/// ncclGroupStart and ncclGroupEnd: what the calling thread has collected between them, and how the
/// operations of one communicator get onto streams.

#include <cuda_runtime_api.h>

#include <memory>

#include "tessera/tests/support/emulated_gpu/nccl/nccl_communicator.h"

namespace tessera::emulated::nccl {

bool in_group();

/// Issues the operation, or keeps it for the end of the group.
ncclResult_t add_operation(const std::shared_ptr<Communicator>& communicator,
                           const Operation& operation, cudaStream_t stream);

/// Whether the group has a call of this communicator whose end it waits for.
bool group_waits_for(const Communicator& communicator);

/// The end of the group waits for the communicator's pending calls.
void add_host_call(const std::shared_ptr<Communicator>& communicator);

/// Until no CUDA graph has calls of the communicator, as NCCL waits before it ends one: for ever,
/// and after a while stderr says so. In a group: at the end of it.
void await_graphs(const std::shared_ptr<Communicator>& communicator);

/// An error within a group spoils it: the end of the group returns it, and nothing is issued.
ncclResult_t note_error(ncclResult_t result);

}  // namespace tessera::emulated::nccl
