#pragma once

/// What the NCCL groups of one rank have in progress, and the thread that watches it: NCCL reports
/// neither a rank that is late nor one that has died, and reports other failures only when asked.
/// Private to this folder and the NCCL process group.
///
/// Every 20 ms the thread removes finished work, and aborts the session if NCCL reports a failure,
/// another rank has failed or left, or the oldest work has been running longer than the timeout.

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/distributed/nccl/nccl_communicator.h"
#include "tessera/distributed/nccl/nccl_peers.h"
#include "tessera/distributed/nccl/process_group_nccl.h"
#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/cuda/replays.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {

using NcclCommunicators = std::vector<std::shared_ptr<NcclCommunicator>>;

/// A collective in progress on a stream, or all collectives of a communicator in one replay of a
/// CUDA graph.
struct NcclWork {
  std::shared_ptr<const NcclRankGroup> rank_group;
  CollectiveSite site;
  FlightTicket ticket;
  std::vector<int> peers;  ///< of an exchange: the others' ranks in the world
  NcclCommunicators communicators;
  std::shared_ptr<RankContext> context;
  DeviceStream stream;
  std::shared_ptr<const cuda::Mark> begun;  ///< the stream got here
  std::shared_ptr<const cuda::Mark> done;
  std::shared_ptr<cuda::Replays> replays{};                      ///< null: no part of a graph
  std::optional<std::chrono::steady_clock::time_point> since{};  ///< seen to have begun

  bool is_exchange() const { return site.sequence == 0; }
  /// Host waits of the streams that it is on throw it.
  void fail(const std::exception_ptr& error) const;
};

/// What NCCL reported, as an Error that knows the collective.
[[noreturn]] void throw_as_error(const NcclFailure& failure, const ResolvedCollective& call);
/// The error as it reads on other ranks: without the operation and the rank at its beginning.
/// `rank`: this one's in the world.
std::string failure_reason(const std::exception& error, const ResolvedCollective& call, int rank);

/// Thread-safe, except that one thread calls watch().
class NcclWatchdog {
 public:
  /// Aborts the session. `reason`: as it reads on other ranks. `failed_work`: fails with `error`,
  /// the others because of it; null: all of them fail because of `reason`. Called from the
  /// watchdog's thread, settle() and finish(), without a lock.
  using Abort = std::function<void(const std::string& reason, const NcclWork* failed_work,
                                   const std::exception_ptr& error)>;
  /// What a stream or a graph calls at host waits; false: there is nothing left to ask.
  using Witness = std::function<bool()>;
  /// What end() has removed.
  struct Ended {
    std::vector<std::pair<NcclWork, std::exception_ptr>> failed{};
    std::vector<std::shared_ptr<void>> graphs{};  ///< what they launch
  };

  /// `options` and `peers` outlive it.
  NcclWatchdog(const NcclOptions& options, NcclPeers& peers, Abort abort);
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  /// Watches a collective from its issue on. With `replays` nothing runs yet: from then on its
  /// replays are watched, the oldest one at a time, until the graph or the communicator ends.
  /// Nothing after end(). `witness` calls settle() if this watchdog still exists.
  void watch(NcclWork work, const Witness& witness);
  /// Removes finished work. If NCCL reports a failure of it, aborts the session.
  void settle();
  /// Returns when no work of the communicator is in progress. From here on its graphs are rejected.
  void finish(const NcclRankGroup& rank_group) noexcept;

  /// Fails the work in progress and rejects graphs; parameters as for Abort. Returns nothing if
  /// that has happened before.
  std::optional<Ended> end(const std::string& reason, const NcclWork* failed_work,
                           const std::exception_ptr& error);
  /// The reason given to the first end().
  std::optional<std::string> abort_reason();

  /// The session's abort for a failure that another rank has reported, if there is one. NCCL knows
  /// only that another rank has failed; that one may have said why.
  void abort_with_peers(const NcclFailure& failure);

 private:
  using Clock = std::chrono::steady_clock;
  using Works = std::list<NcclWork>;

  void run();
  void look();
  std::optional<NcclWork> oldest_begun();
  void look_at(const NcclWork& oldest);  // throws what ends it
  void look_at_peers(const NcclWork& oldest, const ResolvedCollective& call);
  void check_deadline(const NcclWork& work, const ResolvedCollective& call);

  // Adds the work to that of its graph's replays; true for the first of its communicator. Lock
  // held.
  bool add_captured(NcclWork&& work);
  // Replays that have been issued since become work. Lock held.
  void follow_replays();
  void refuse_graphs(const NcclRankGroup& rank_group);

  const NcclOptions& options_;
  NcclPeers& peers_;
  const Abort abort_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Works works_;     // in the order of their issue
  Works captured_;  // marks are those of the replay last seen
  std::optional<std::string> abort_reason_;
  bool stop_ = false;
  std::set<std::uint64_t> witnessed_;       // streams whose host waits ask; watch() alone uses it
  Clock::time_point next_look_at_peers_{};  // the thread's own
  std::thread thread_;
};

}  // namespace tessera::distributed
