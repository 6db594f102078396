#include "tessera/distributed/transports/local_meeting.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "tessera/distributed/transports/local_moves.h"

namespace tessera::distributed {
namespace {

void wait_for_marks(const std::vector<LocalMark>& marks, int rank, LocalMover& mover) {
  for (std::size_t peer = 0; peer < marks.size(); ++peer) {
    if (static_cast<int>(peer) != rank) mover.wait(marks[peer]);
  }
}

}  // namespace

LocalMeetings::LocalMeetings(std::vector<int> ranks, std::chrono::milliseconds timeout)
    : ranks_(std::move(ranks)),
      size_(static_cast<int>(ranks_.size())),
      timeout_(timeout),
      left_(ranks_.size(), false) {}

void LocalMeetings::perform(const ResolvedCollective& call, LocalMover& mover) {
  if (call.kind == CollectiveKind::kExchange) return exchange(call, mover);
  const std::shared_ptr<Meeting> meeting = arrive(call, mover.mark());
  LocalMark moved;
  const std::exception_ptr failure = move(*meeting, call, mover, &moved);
  // Also after a failure: the others wait for every rank, without a deadline.
  const int failed = depart(*meeting, call, failure != nullptr, std::move(moved));
  if (failure) std::rethrow_exception(failure);
  wait_for_marks(meeting->moved, call.site.rank, mover);
  if (failed < 0) return;
  Lock lock(mutex_);
  set_aborted(failed, fmt::format("{} could not move its data", call.str()));
  throw_aborted(call, fmt::format("was given up: {}", *abort_));
}

std::exception_ptr LocalMeetings::move(Meeting& meeting, const ResolvedCollective& call,
                                       LocalMover& mover, LocalMark* moved) noexcept {
  std::exception_ptr failure;
  try {
    mover.check_reach(meeting.calls, call.site.rank);
    wait_for_marks(meeting.ready, call.site.rank, mover);
    for (std::size_t i = 0; i < call.members.size(); ++i)
      move_member(meeting.calls, call.site.rank, i, mover);
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

std::shared_ptr<LocalMeetings::Meeting> LocalMeetings::arrive(const ResolvedCollective& call,
                                                              LocalMark ready) {
  Lock lock(mutex_);
  if (abort_) throw_aborted(call, fmt::format("was given up: {}", *abort_));
  const std::shared_ptr<Meeting> meeting = meeting_of(call);
  check_agreement(*meeting, call);
  const ResolvedCollective*& place = meeting->calls[static_cast<std::size_t>(call.site.rank)];
  place = &call;
  meeting->ready[static_cast<std::size_t>(call.site.rank)] = std::move(ready);
  if (++meeting->arrived == size_) {
    lock.unlock();
    meeting->changed.notify_all();
    return meeting;
  }
  try {
    wait_for_peers(*meeting, call, lock);
  } catch (...) {
    // No rank may find a call that is destroyed. The lock is held, and not all have arrived.
    place = nullptr;
    --meeting->arrived;
    throw;
  }
  return meeting;
}

std::shared_ptr<LocalMeetings::Meeting> LocalMeetings::meeting_of(const ResolvedCollective& call) {
  const auto found = meetings_.find(call.site.sequence);
  if (found != meetings_.end()) return found->second;
  const auto made = std::make_shared<Meeting>();
  made->calls.resize(static_cast<std::size_t>(size_));
  made->ready.resize(static_cast<std::size_t>(size_));
  made->moved.resize(static_cast<std::size_t>(size_));
  meetings_.emplace(call.site.sequence, made);
  return made;
}

void LocalMeetings::check_agreement(const Meeting& meeting, const ResolvedCollective& call) {
  bool agrees = false;  // with one, so with all: they agree among themselves
  for (const ResolvedCollective* other : meeting.calls) {
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

void LocalMeetings::wait_for_peers(Meeting& meeting, const ResolvedCollective& call, Lock& lock) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (meeting.arrived < size_) {
    if (abort_) throw_aborted(call, fmt::format("was given up: {}", *abort_));
    if (const std::optional<int> leaver = missing_leaver(meeting)) {
      const std::string what =
          fmt::format("needs rank {}, which has left the group", world_rank(*leaver));
      set_aborted(call.site.rank, fmt::format("{} {}", call.str(), what));
      throw_collective_error(call, what);
    }
    if (meeting.changed.wait_until(lock, deadline) == std::cv_status::timeout &&
        meeting.arrived < size_ && !abort_) {
      std::vector<int> absent;
      for (const int rank : missing(meeting)) absent.push_back(world_rank(rank));
      const std::string what =
          fmt::format("timed out after {:g} s: {} did not arrive",
                      std::chrono::duration<double>(timeout_).count(), ranks_text(absent));
      set_aborted(call.site.rank, fmt::format("{} {}", call.str(), what));
      throw_timeout(call, what);
    }
  }
}

int LocalMeetings::depart(Meeting& meeting, const ResolvedCollective& call, bool failed,
                          LocalMark moved) noexcept {
  Lock lock(mutex_);
  meeting.moved[static_cast<std::size_t>(call.site.rank)] = std::move(moved);
  if (failed && meeting.failed < 0) meeting.failed = call.site.rank;
  if (++meeting.departed == size_) {
    meetings_.erase(call.site.sequence);
    const int first_failed = meeting.failed;
    lock.unlock();
    meeting.changed.notify_all();
    return first_failed;
  }
  meeting.changed.wait(lock, [&] { return meeting.departed == size_; });
  return meeting.failed;
}

std::vector<int> LocalMeetings::missing(const Meeting& meeting) const {
  std::vector<int> out;
  for (int rank = 0; rank < size_; ++rank) {
    if (meeting.calls[static_cast<std::size_t>(rank)] == nullptr) out.push_back(rank);
  }
  return out;
}

std::optional<int> LocalMeetings::missing_leaver(const Meeting& meeting) const {
  for (int rank : missing(meeting)) {
    if (left_[static_cast<std::size_t>(rank)]) return rank;
  }
  return std::nullopt;
}

void LocalMeetings::abort(int rank, const std::string& reason) noexcept {
  abort_with(fmt::format("rank {} failed: {}", world_rank(rank), reason));
}

void LocalMeetings::abort_with(const std::string& reason) noexcept {
  std::vector<std::shared_ptr<LocalMeetings>> subgroups;
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

std::shared_ptr<LocalMeetings> LocalMeetings::subgroup(const std::string& key,
                                                       const std::vector<int>& ranks) {
  std::lock_guard lock(mutex_);
  std::erase_if(subgroups_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<LocalMeetings>& place = subgroups_[key];
  std::shared_ptr<LocalMeetings> meetings = place.lock();
  if (!meetings) {
    meetings = std::make_shared<LocalMeetings>(ranks, timeout_);
    meetings->abort_ = abort_;
    place = meetings;
  }
  return meetings;
}

void LocalMeetings::set_aborted(int rank, const std::string& reason) {
  if (!abort_) abort_ = fmt::format("rank {} failed: {}", world_rank(rank), reason);
  wake_all();
}

void LocalMeetings::wake_all() {
  for (auto& [sequence, meeting] : meetings_) meeting->changed.notify_all();
  letters_changed_.notify_all();
}

void LocalMeetings::leave(int rank) noexcept {
  std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  wake_all();
}

}  // namespace tessera::distributed
