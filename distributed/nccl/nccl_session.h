#pragma once

/// What the NCCL groups of one rank share: how communicators are made, what runs, and the end of
/// all of them when one fails. Private to this folder and the NCCL process group.
///
/// The rank's thread connects and issues; abort() comes from any thread, also from the watchdog's.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tessera/distributed/nccl/nccl_communicator.h"
#include "tessera/distributed/nccl/nccl_peers.h"
#include "tessera/distributed/nccl/nccl_watchdog.h"
#include "tessera/distributed/nccl/process_group_nccl.h"
#include "tessera/distributed/resolved_collective.h"

namespace tessera::distributed {

class NcclSession : public std::enable_shared_from_this<NcclSession> {
 public:
  /// `options.rank` is the rank in the world.
  explicit NcclSession(const NcclOptions& options);
  /// All that was issued is done.
  ~NcclSession() = default;
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
  /// NcclWatchdog::watch. Throws CollectiveAborted if the session was aborted since the issue.
  void watch(NcclWork work);
  /// NcclWatchdog::finish; from here on, this rank has left the communicator.
  void finish(const NcclRankGroup& rank_group) noexcept;
  void note_issued(const NcclRankGroup& rank_group, std::uint64_t sequence) {
    peers_.note_issued(rank_group, sequence);
  }

  /// Ends everything, also graphs that are held elsewhere; the peers learn it. The GPU may get
  /// there later. Idempotent, from any thread.
  void abort(const std::string& reason) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void await_id(const NcclRankGroup& rank_group, const ResolvedCollective& call,
                Clock::time_point deadline, std::string& id);
  void await_ready(std::span<const NcclRankGroup> rank_groups,
                   const NcclCommunicators& communicators, const ResolvedCollective& call);
  void look_around(const ResolvedCollective& call);
  [[noreturn]] void throw_late(std::span<const NcclRankGroup> rank_groups,
                               const ResolvedCollective& call);
  // Turns an exception of `work` into an Error that names the call, and aborts the session.
  void guarded(const ResolvedCollective& call, const std::function<void()>& work);
  void abort_works(const std::string& reason, const NcclWork* failed_work,
                   const std::exception_ptr& error) noexcept;  // see NcclWatchdog::Abort
  void abort_apart(const NcclCommunicators& communicators, NcclWatchdog::Ended& ended);
  NcclCommunicators live_communicators();

  const NcclOptions options_;
  NcclPeers peers_;
  std::mutex live_mutex_;
  std::vector<std::weak_ptr<NcclCommunicator>> live_;  // for an abort
  std::jthread aborter_;   // aborts the communicators, before other threads can end the session
  NcclWatchdog watchdog_;  // last: its thread may abort the session until it has ended
};

}  // namespace tessera::distributed
