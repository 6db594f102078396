#pragma once

/// The rendezvous barrier of the rank threads of a local group: one for each collective, found by
/// its sequence number.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/distributed/transports/local_mover.h"

namespace tessera::distributed {

/// Shared by all ranks of a group; thread-safe.
///
/// A collective has three phases: arrive (wait until every rank is there), move (read the peers'
/// memory), depart (wait until every rank has moved). A rank may abort in the first phase only, so
/// no memory is freed while a peer reads it; once all have arrived, the rest takes finite time. A
/// rank that fails in the second phase departs with the others, and they fail with it.
///
/// On GPUs the same phases order the issued work: ranks rendezvous when they issue, and marks
/// (events) order their streams. Arriving records a mark after all earlier work of the rank's
/// stream; the peers' streams wait for it before they read. Departing records one after the moves;
/// the peers' streams wait for it before they overwrite. No host waits for a GPU.
class LocalBarriers {
 public:
  /// `ranks`: the members' ranks in the world, by place: for errors.
  LocalBarriers(std::vector<int> ranks, std::chrono::milliseconds timeout);

  /// The whole collective, on the calling thread, as rank `call.site.rank`.
  void perform(const ResolvedCollective& call, LocalMover& mover);
  /// Of this group and its sub-groups.
  void abort(int rank, const std::string& reason) noexcept;
  /// `rank` takes part in no further collective.
  void leave(int rank) noexcept;
  /// The barrier of a sub-group: the same for all ranks that pass the same key, as long as one of
  /// them holds it.
  std::shared_ptr<LocalBarriers> subgroup(const std::string& key, const std::vector<int>& ranks);

 private:
  struct Barrier {
    std::vector<const ResolvedCollective*> calls;  // by rank; null: not there yet
    std::vector<LocalMark> ready;                  // by rank: its memory may be used from here on
    std::vector<LocalMark> moved;                  // by rank: it has used its peers'
    int arrived = 0;
    int departed = 0;
    int failed = -1;  // the first rank that could not move
    std::condition_variable changed;
  };
  using Lock = std::unique_lock<std::mutex>;

  // Exchanges: the tensor that a sender offers to one receiver. The sender owns it, and waits until
  // the receiver has copied it.
  struct Letter {
    const ResolvedCollective* call = nullptr;
    const ResolvedMessage* message = nullptr;
    LocalMark ready{};     // the receiver may read from here on
    LocalMark read{};      // the sender may overwrite from here on
    bool reading = false;  // from here on the sender may not abort
    bool done = false;
    std::string refused{};  // what the receiver found wrong
  };
  // Sender, receiver, channel, place.
  using Address = std::tuple<int, int, Channel, std::uint64_t>;

  void exchange(const ResolvedCollective& call, LocalMover& mover);
  void receive(const ResolvedCollective& call, const ResolvedMessage& message, LocalMover& mover,
               Lock& lock);
  void refuse(const ResolvedCollective& call, const ResolvedMessage& message, Letter& letter);
  void await_letters(const ResolvedCollective& call, std::vector<Letter>& letters, Lock& lock);
  void take_back(const ResolvedCollective& call, std::vector<Letter>& letters, Lock& lock) noexcept;
  // Waits until `ready`; throws at the deadline, after an abort, or when `peer` left before.
  template <class Ready>
  void wait_for_peer(const ResolvedCollective& call, int peer, Lock& lock, Ready ready);

  std::shared_ptr<Barrier> arrive(const ResolvedCollective& call, LocalMark ready);
  std::shared_ptr<Barrier> barrier_of(const ResolvedCollective& call);  // lock held
  void check_agreement(const Barrier& barrier, const ResolvedCollective& call);
  void wait_for_peers(Barrier& barrier, const ResolvedCollective& call, Lock& lock);
  // This rank's share; what went wrong in it, if anything.
  std::exception_ptr move(Barrier& barrier, const ResolvedCollective& call, LocalMover& mover,
                          LocalMark* moved) noexcept;
  // The first rank that failed in this collective, -1 for none.
  int depart(Barrier& barrier, const ResolvedCollective& call, bool failed,
             LocalMark moved) noexcept;
  std::vector<int> missing(const Barrier& barrier) const;  // ranks of this group
  std::optional<int> missing_leaver(const Barrier& barrier) const;
  void set_aborted(int rank, const std::string& reason);  // lock held, here and below
  void wake_all();
  void abort_with(const std::string& reason) noexcept;  // takes the lock

  int world_rank(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  const std::vector<int> ranks_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Barrier>> barriers_;
  std::map<Address, Letter*> letters_;
  std::condition_variable letters_changed_;
  std::map<std::string, std::weak_ptr<LocalBarriers>> subgroups_;
  std::vector<bool> left_;
  std::optional<std::string> abort_;
};

}  // namespace tessera::distributed
