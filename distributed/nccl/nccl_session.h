#pragma once

/// What the NCCL groups of one rank share: how communicators are made, what runs, and the end of
/// all of them when one fails. Private to this folder and the NCCL process group.
///
/// The rank's thread connects and issues; abort() comes from any thread. A thread of the session's
/// own watches what was issued.

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
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
  Stream stream;
  std::shared_ptr<const cuda::Mark> begun;  ///< the stream got here
  std::shared_ptr<const cuda::Mark> done;
  std::shared_ptr<cuda::Replays> replays{};                      ///< null: no part of a graph
  std::optional<std::chrono::steady_clock::time_point> since{};  ///< seen to have begun

  bool is_exchange() const { return site.sequence == 0; }
  /// Host waits of the streams that it is on throw it.
  void fail(const std::exception_ptr& error) const;
};

class NcclSession : public std::enable_shared_from_this<NcclSession> {
 public:
  /// `options.rank` is the rank in the world.
  explicit NcclSession(const NcclOptions& options);
  /// All that was issued is done.
  ~NcclSession();
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;

  const NcclOptions& options() const { return options_; }

  /// Throws CollectiveAborted if the session has been aborted.
  void check(const ResolvedCollective& call);
  /// A connected communicator for each entry of `rank_groups`; all ranks of an entry call this for it.
  /// Throws TimeoutError naming the ranks that did not connect, CollectiveAborted, and failures of
  /// NCCL.
  NcclCommunicators connect(std::span<const NcclRankGroup> rank_groups,
                            const ResolvedCollective& call);
  /// Registered memory of a communicator; all ranks of it call it alike. Throws as connect().
  std::vector<std::byte*> allocate_slots(const std::shared_ptr<NcclCommunicator>& communicator,
                                         const ResolvedCollective& call);
  /// Runs `calls` as one group of NCCL and returns when they are on their streams. Throws as
  /// connect().
  void issue(const NcclCommunicators& communicators, const ResolvedCollective& call,
             const std::function<void()>& calls);
  /// Watches a collective from its issue on. With `replays` nothing runs yet: from then on its
  /// replays are watched, the oldest one at a time, until the graph or the communicator ends.
  void watch(NcclWork work);
  /// Returns when no watched work of the communicator is in progress. From here on its graphs are
  /// rejected, and this rank has left it.
  void finish(const NcclRankGroup& rank_group) noexcept;
  void note_issued(const NcclRankGroup& rank_group, std::uint64_t sequence) {
    peers_.note_issued(rank_group, sequence);
  }

  /// Ends everything, also graphs that are held elsewhere; the peers learn it. The GPU may get
  /// there later. Idempotent, from any thread.
  void abort(const std::string& reason) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  using Works = std::list<NcclWork>;
  // What is left to be told, and to be ended.
  struct Ended {
    std::vector<std::pair<NcclWork, std::exception_ptr>> failed{};
    NcclCommunicators communicators{};
    std::vector<std::shared_ptr<void>> graphs{};  // what they launch
  };

  void await_id(const NcclRankGroup& rank_group, const ResolvedCollective& call,
                Clock::time_point deadline, std::string& id);
  void await_ready(std::span<const NcclRankGroup> rank_groups,
                   const NcclCommunicators& communicators, const ResolvedCollective& call);
  void look_around(const ResolvedCollective& call);
  void hear_of_peers(const NcclFailure& failure);
  [[noreturn]] void throw_late(std::span<const NcclRankGroup> rank_groups,
                               const ResolvedCollective& call);
  std::string reason_of(const std::exception& error, const ResolvedCollective& call);
  // Turns an exception of `work` into an Error that names the call, and aborts the session.
  void guarded(const ResolvedCollective& call, const std::function<void()>& work);
  // `reason`: as it reads on other ranks. `failed_work`: fails with `error`, the others with echoes;
  // null: all of them do.
  void abort_works(const std::string& reason, const NcclWork* failed_work,
                   const std::exception_ptr& error) noexcept;

  // Fails the work in progress and rejects graphs. Returns nothing if it was all aborted before.
  std::optional<Ended> end_works(const std::string& reason, const NcclWork* failed_work,
                                 const std::exception_ptr& error);
  void abort_apart(Ended& ended);
  void refuse_graphs(const NcclRankGroup& rank_group);

  void run_watchdog();
  // Removes finished work from the list. If NCCL reports a failure, aborts everything.
  void settle();
  void be_witness_on(const Stream& stream);
  std::function<bool()> witness();
  // Adds the work to that of its graph's replays; true for the first of its communicator. Lock
  // held.
  bool add_captured(NcclWork&& work);
  // Replays that have been issued since become work. Lock held.
  void follow_replays();
  void look();
  std::optional<NcclWork> oldest_begun();
  void look_at(const NcclWork& oldest);  // throws what ends it
  void look_at_peers(const NcclWork& oldest, const ResolvedCollective& call);
  void check_deadline(const NcclWork& work, const ResolvedCollective& call);

  const NcclOptions options_;
  NcclPeers peers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Works works_;                                        // in the order of their issue
  Works captured_;                                     // marks are those of the replay last seen
  std::vector<std::weak_ptr<NcclCommunicator>> live_;  // for an abort
  std::optional<std::string> abort_reason_;
  std::set<std::uint64_t> witnessed_;  // streams whose host waits ask this session
  bool stop_ = false;
  Clock::time_point next_look_at_peers_{};  // the watchdog's own
  std::thread aborter_;  // aborts the communicators, before other threads can end the session
  std::thread watchdog_;
};

/// What NCCL reported, as an Error that knows the collective.
[[noreturn]] void throw_as_error(const NcclFailure& failure, const ResolvedCollective& call);

}  // namespace tessera::distributed
