#pragma once

/// The ranks of one communicator of the emulated NCCL, and where their operations meet.
///
/// Everything here is guarded by `mutex`; waits are on `changed`. Operations meet while they run on
/// the ranks' streams: collectives by their number in the communicator, sends and receives by pair
/// of ranks. The last to come does the work for all, the others wait for it. Ranks whose operations
/// differ wait for ever, as on GPUs; but stderr says why, and the communicators report an
/// asynchronous error.

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tests/support/emulated_gpu/nccl/nccl_operation.h"

namespace tessera::emulated::nccl {

/// Whether other ranks do not see aborts of a rank and mismatches, and wait until they time out
/// themselves, as ranks of one machine often do: TESSERA_EMULATED_NCCL_SILENT=1.
bool is_silent();

class Clique {
 public:
  explicit Clique(int size) : members(size) {}

  struct Member {
    bool joined = false, aborted = false, finalized = false;
    int device = 0;
    std::string host;  // ranks of one host must have different devices
    ncclResult_t error = ncclSuccess;
  };

  /// One rank's operation, from the time its stream comes to it. Lives in that stream's work.
  struct Posted {
    const Operation* operation = nullptr;
    int rank = 0;
    bool done = false;
  };
  /// `number` counts the rank's collectives. The operation may be done at once.
  void post_collective(Posted& posted, std::uint64_t number);
  void post_point_to_point(Posted& posted);
  /// The rank leaves without having seen its operations done; no operation is done from now on.
  void withdraw(const Posted& posted);

  /// ncclInProgress until all ranks have joined; then what became of this one.
  ncclResult_t join_result(int rank);
  void abort(int rank);
  /// Whether this rank's operation will never be done because another rank has aborted; the rank's
  /// error is ncclRemoteError from then on.
  bool is_left_alone(int rank);
  /// Whether every rank has finalized, or never will.
  bool all_finalized() const;
  /// Sets the error of every rank that has none.
  void fail(ncclResult_t error, const std::string& why);

  int size() const { return static_cast<int>(members.size()); }

  /// What ranks bring to the registration of a window, in which all of them take part on the host.
  struct WindowBarrier {
    std::size_t bytes = 0;
    int flags = 0, arrived = 0;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Member> members;
  std::map<std::uint64_t, WindowBarrier> windows;  // by the rank's count of calls

 private:
  void check_devices();

  struct Barrier {
    std::vector<Posted*> by_rank;
    int arrived = 0;
  };
  std::map<std::uint64_t, Barrier> barriers_;
  std::map<std::pair<int, int>, std::deque<Posted*>> sends_, recvs_;  // by sender and receiver
  bool broken_ = false, checked_ = false;
  int aborted_ = -1;  // the first rank that has
};

/// The ranks that hold one unique id; the first to come founds the clique. Null, with the reason on
/// stderr, where this rank cannot be one of them.
struct Membership {
  std::shared_ptr<Clique> clique;
  ncclResult_t result = ncclSuccess;
};
Membership enter(const ncclUniqueId& id, int ranks, int rank, int device);

/// Says why on stderr, and keeps it for ncclGetLastError.
ncclResult_t refuse(const char* function, ncclResult_t result, const std::string& why);

}  // namespace tessera::emulated::nccl
