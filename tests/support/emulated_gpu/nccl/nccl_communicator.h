#pragma once

/// One rank's communicator of the emulated NCCL: its rank in the clique, its calls in progress on
/// the host, and the order of its operations.
///
/// A non-blocking communicator (config.blocking = 0) returns ncclInProgress from every call that
/// starts something, and starts it when ncclCommGetAsyncError is called for the second time. Code
/// that uses the communicator, or records events, before that has returned ncclSuccess, does so too
/// early, as on GPUs.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tests/support/emulated_gpu/nccl/nccl_clique.h"

namespace tessera::emulated::nccl {

struct Window {
  const char* at = nullptr;
  std::size_t bytes = 0;
  int flags = 0;
  std::uint64_t number = 0;  ///< of the communicator's registrations
};
struct Buffer {
  std::unique_ptr<char> handle;  ///< its address is the handle
  const void* at = nullptr;
  std::size_t bytes = 0;
};

struct Communicator {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  bool blocking = true;

  // Guarded by clique->mutex.
  std::vector<std::function<ncclResult_t()>> pending;   ///< calls on the host that have not ended
  std::uint64_t issued = 0, finished = 0;               ///< groups of operations, outside of graphs
  std::uint64_t collectives = 0;                        ///< that have run
  int running = 0;                                      ///< groups that streams are at
  int captured = 0;                                     ///< groups in CUDA graphs that live
  std::vector<std::function<ncclResult_t()>> deferred;  ///< launches of a non-blocking one
  int polls = 0;                                        ///< since then
  bool launching = false;                               ///< a thread is launching them

  // Of the thread that calls.
  bool finalizing = false, finalized = false;
  std::uint64_t windows_registered = 0;
  std::map<int, Reduction> reductions;    ///< of ncclRedOpCreatePreMulSum
  std::map<const void*, Window> windows;  ///< by handle
  std::vector<std::unique_ptr<char>> window_handles;
  std::map<const void*, Buffer> buffers;  ///< registered; by handle

  int size() const { return clique->size(); }
  /// Whether a stream need not wait for its operations any longer. With the clique's mutex.
  bool is_released() const {
    const Clique::Member& me = clique->members[rank];
    return me.aborted || me.error == ncclRemoteError;
  }
};

/// The live communicator of a handle; null, with the reason on stderr, where there is none.
std::shared_ptr<Communicator> find(const char* function, ncclComm_t handle);
ncclComm_t publish(std::shared_ptr<Communicator> communicator);
void retire(ncclComm_t handle);

/// What a call gets that needs the communicator idle and healthy.
ncclResult_t check_ready(const char* function, Communicator& communicator);

/// ncclInProgress, or what the pending calls ended with. With the clique's mutex.
ncclResult_t poll_pending(Communicator& communicator);
/// Waits for the end of them.
ncclResult_t wait_for_pending(Communicator& communicator);

/// What a call that has added to `pending` returns: in a group or non-blocking ncclSuccess or
/// ncclInProgress at once, else the end of it.
ncclResult_t end_host_call(const std::shared_ptr<Communicator>& communicator);

}  // namespace tessera::emulated::nccl
