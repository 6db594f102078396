#include "tessera/distributed/transports/local_barrier.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "tessera/distributed/transports/local_mover.h"

namespace tessera::distributed {
namespace {

void wait_for_marks(const std::vector<LocalMark>& marks, int rank, LocalMover& mover) {
  for (std::size_t peer = 0; peer < marks.size(); ++peer) {
    if (static_cast<int>(peer) != rank) mover.wait(marks[peer]);
  }
}

}  // namespace

LocalBarriers::LocalBarriers(std::vector<int> ranks, std::chrono::milliseconds timeout)
    : ranks_(std::move(ranks)),
      size_(static_cast<int>(ranks_.size())),
      timeout_(timeout),
      left_(ranks_.size(), false) {}

void LocalBarriers::perform(const ResolvedCollective& call, LocalMover& mover) {
  if (call.kind == CollectiveKind::kExchange) return exchange(call, mover);
  const std::shared_ptr<Barrier> barrier = arrive(call, mover.mark());
  LocalMark moved;
  const std::exception_ptr failure = move(*barrier, call, mover, &moved);
  // Also after a failure: the others wait for every rank, without a deadline.
  const int failed = depart(*barrier, call, failure != nullptr, std::move(moved));
  if (failure) std::rethrow_exception(failure);
  wait_for_marks(barrier->moved, call.site.rank, mover);
  if (failed < 0) return;
  Lock lock(mutex_);
  set_aborted(failed, fmt::format("{} could not move its data", call.str()));
  throw_aborted(call, fmt::format("was aborted: {}", *abort_));
}

std::exception_ptr LocalBarriers::move(Barrier& barrier, const ResolvedCollective& call,
                                       LocalMover& mover, LocalMark* moved) noexcept {
  std::exception_ptr failure;
  try {
    mover.check_reach(barrier.calls, call.site.rank);
    wait_for_marks(barrier.ready, call.site.rank, mover);
    for (std::size_t i = 0; i < call.members.size(); ++i)
      move_member(barrier.calls, call.site.rank, i, mover);
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    *moved = mover.mark();  // also behind half of the moves
  } catch (...) {
    if (!failure) failure = std::current_exception();
  }
  return failure;
}

std::shared_ptr<LocalBarriers::Barrier> LocalBarriers::arrive(const ResolvedCollective& call,
                                                              LocalMark ready) {
  Lock lock(mutex_);
  if (abort_) throw_aborted(call, fmt::format("was aborted: {}", *abort_));
  const std::shared_ptr<Barrier> barrier = barrier_of(call);
  check_agreement(*barrier, call);
  const ResolvedCollective*& place = barrier->calls[static_cast<std::size_t>(call.site.rank)];
  place = &call;
  barrier->ready[static_cast<std::size_t>(call.site.rank)] = std::move(ready);
  if (++barrier->arrived == size_) {
    lock.unlock();
    barrier->changed.notify_all();
    return barrier;
  }
  try {
    wait_for_peers(*barrier, call, lock);
  } catch (...) {
    // No rank may find a call that is destroyed. The lock is held, and not all have arrived.
    place = nullptr;
    --barrier->arrived;
    throw;
  }
  return barrier;
}

std::shared_ptr<LocalBarriers::Barrier> LocalBarriers::barrier_of(const ResolvedCollective& call) {
  const auto found = barriers_.find(call.site.sequence);
  if (found != barriers_.end()) return found->second;
  const auto made = std::make_shared<Barrier>();
  made->calls.resize(static_cast<std::size_t>(size_));
  made->ready.resize(static_cast<std::size_t>(size_));
  made->moved.resize(static_cast<std::size_t>(size_));
  barriers_.emplace(call.site.sequence, made);
  return made;
}

void LocalBarriers::check_agreement(const Barrier& barrier, const ResolvedCollective& call) {
  bool agrees = false;  // with one, so with all: they agree among themselves
  for (const ResolvedCollective* other : barrier.calls) {
    if (other == nullptr) continue;
    const bool same = agrees || other->fingerprint() == call.fingerprint();
    agrees = same;
    const std::string rows = same ? row_mismatch(call, *other, ranks_) : std::string();
    if (same && rows.empty()) continue;
    const std::string what =
        same ? fmt::format("does not agree between ranks: {}", rows)
             : fmt::format(
                   "does not agree between ranks: here {}, on rank {} {}; all ranks must "
                   "issue the same collectives in the same order",
                   call.terms(), world_rank(other->site.rank), other->terms());
    set_aborted(call.site.rank,
                fmt::format("the ranks disagree in collective #{}", call.site.sequence));
    throw_collective_error(call, what);
  }
}

void LocalBarriers::wait_for_peers(Barrier& barrier, const ResolvedCollective& call, Lock& lock) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (barrier.arrived < size_) {
    if (abort_) throw_aborted(call, fmt::format("was aborted: {}", *abort_));
    if (const std::optional<int> leaver = missing_leaver(barrier)) {
      const std::string what = needs_rank_that_left(world_rank(*leaver));
      set_aborted(call.site.rank, fmt::format("{} {}", call.str(), what));
      throw_collective_error(call, what);
    }
    if (barrier.changed.wait_until(lock, deadline) == std::cv_status::timeout &&
        barrier.arrived < size_ && !abort_) {
      std::vector<int> absent;
      for (const int rank : missing(barrier)) absent.push_back(world_rank(rank));
      const std::string what =
          fmt::format("timed out after {:g} s: {} did not arrive",
                      std::chrono::duration<double>(timeout_).count(), ranks_text(absent));
      set_aborted(call.site.rank, fmt::format("{} {}", call.str(), what));
      throw_timeout(call, what);
    }
  }
}

int LocalBarriers::depart(Barrier& barrier, const ResolvedCollective& call, bool failed,
                          LocalMark moved) noexcept {
  Lock lock(mutex_);
  barrier.moved[static_cast<std::size_t>(call.site.rank)] = std::move(moved);
  if (failed && barrier.failed < 0) barrier.failed = call.site.rank;
  if (++barrier.departed == size_) {
    barriers_.erase(call.site.sequence);
    const int first_failed = barrier.failed;
    lock.unlock();
    barrier.changed.notify_all();
    return first_failed;
  }
  // Untimed: all have arrived, and no rank waits for anything else before it departs.
  barrier.changed.wait(lock, [&] { return barrier.departed == size_; });
  return barrier.failed;
}

std::vector<int> LocalBarriers::missing(const Barrier& barrier) const {
  std::vector<int> out;
  for (int rank = 0; rank < size_; ++rank) {
    if (barrier.calls[static_cast<std::size_t>(rank)] == nullptr) out.push_back(rank);
  }
  return out;
}

std::optional<int> LocalBarriers::missing_leaver(const Barrier& barrier) const {
  for (int rank : missing(barrier)) {
    if (left_[static_cast<std::size_t>(rank)]) return rank;
  }
  return std::nullopt;
}

void LocalBarriers::abort(int rank, const std::string& reason) noexcept {
  abort_with(fmt::format("rank {} failed: {}", world_rank(rank), reason));
}

void LocalBarriers::abort_with(const std::string& reason) noexcept {
  std::vector<std::shared_ptr<LocalBarriers>> subgroups;
  {
    std::lock_guard lock(mutex_);
    if (!abort_) abort_ = reason;
    wake_all();
    for (const auto& [key, subgroup] : subgroups_) {
      if (auto alive = subgroup.lock()) subgroups.push_back(std::move(alive));
    }
  }
  for (const auto& subgroup : subgroups) subgroup->abort_with(*abort_);
}

std::shared_ptr<LocalBarriers> LocalBarriers::subgroup(const std::string& key,
                                                       const std::vector<int>& ranks) {
  std::lock_guard lock(mutex_);
  std::erase_if(subgroups_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<LocalBarriers>& place = subgroups_[key];
  std::shared_ptr<LocalBarriers> barriers = place.lock();
  if (!barriers) {
    barriers = std::make_shared<LocalBarriers>(ranks, timeout_);
    barriers->abort_ = abort_;
    place = barriers;
  }
  return barriers;
}

void LocalBarriers::set_aborted(int rank, const std::string& reason) {
  if (!abort_) abort_ = fmt::format("rank {} failed: {}", world_rank(rank), reason);
  wake_all();
}

void LocalBarriers::wake_all() {
  for (auto& [sequence, barrier] : barriers_) barrier->changed.notify_all();
  letters_changed_.notify_all();
}

void LocalBarriers::leave(int rank) noexcept {
  std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  wake_all();
}

}  // namespace tessera::distributed
