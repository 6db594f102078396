#include "tessera/distributed/local_meeting.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <numeric>

#include "tessera/distributed/reduce_in_order.h"

namespace tessera::distributed {
namespace {

using Calls = std::vector<const ResolvedCollective*>;

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

void gather_member(const Calls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::size_t part = static_cast<std::size_t>(mine.members[i].count_in) * mine.element_size();
  for (std::size_t p = 0; p < calls.size(); ++p)
    copy_bytes(mine.members[i].output + p * part, calls[p]->members[i].input, part);
}

// Reduces elements [begin, begin + count) of member i over all ranks into `out`.
void reduce_range(const Calls& calls, std::size_t i, std::int64_t begin, std::int64_t count,
                  std::byte* out, const ResolvedCollective& mine) {
  if (count == 0) return;
  const std::size_t offset = static_cast<std::size_t>(begin) * mine.element_size();
  std::vector<const void*> sources;
  sources.reserve(calls.size());
  for (const ResolvedCollective* call : calls) sources.push_back(call->members[i].input + offset);
  reduce_in_order(mine.dtype, mine.reduce, sources, out, count);
}

void scatter_member(const Calls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::int64_t part = mine.members[i].count_out;
  reduce_range(calls, i, rank * part, part, mine.members[i].output, mine);
}

// Each rank reduces a stretch of its own and hands it to everyone: nobody else touches that
// stretch, so it works in place.
void all_reduce_member(const Calls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  const std::int64_t size = static_cast<std::int64_t>(calls.size());
  const std::int64_t begin = mine.members[i].count_in * rank / size;
  const std::int64_t count = mine.members[i].count_in * (rank + 1) / size - begin;
  const std::size_t offset = static_cast<std::size_t>(begin) * mine.element_size();
  std::byte* own = mine.members[i].output + offset;
  reduce_range(calls, i, begin, count, own, mine);
  for (const ResolvedCollective* peer : calls)
    copy_bytes(peer->members[i].output + offset, own,
               static_cast<std::size_t>(count) * mine.element_size());
}

std::int64_t rows_before(const std::vector<std::int64_t>& rows, std::size_t rank) {
  return std::accumulate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(rank),
                         std::int64_t{0});
}

void exchange_member(const Calls& calls, int rank, std::size_t i) {
  const auto me = static_cast<std::size_t>(rank);
  const ResolvedCollective& mine = *calls[me];
  const std::size_t row =
      static_cast<std::size_t>(mine.members[i].row_elements) * mine.element_size();
  std::byte* to = mine.members[i].output;
  for (std::size_t p = 0; p < calls.size(); ++p) {
    const auto first = static_cast<std::size_t>(rows_before(calls[p]->rows_sent, me));
    const std::size_t bytes = static_cast<std::size_t>(mine.rows_received[p]) * row;
    if (bytes == 0) continue;
    copy_bytes(to, calls[p]->members[i].input + first * row, bytes);
    to += bytes;
  }
}

void broadcast_member(const Calls& calls, int rank, std::size_t i) {
  const ResolvedCollective& mine = *calls[static_cast<std::size_t>(rank)];
  if (rank == mine.root) return;
  copy_bytes(mine.members[i].output, calls[static_cast<std::size_t>(mine.root)]->members[i].input,
             static_cast<std::size_t>(mine.members[i].count_in) * mine.element_size());
}

void move_member(const Calls& calls, int rank, std::size_t i) {
  switch (calls[static_cast<std::size_t>(rank)]->kind) {
    case CollectiveKind::kAllGather:
      return gather_member(calls, rank, i);
    case CollectiveKind::kReduceScatter:
      return scatter_member(calls, rank, i);
    case CollectiveKind::kAllReduce:
      return all_reduce_member(calls, rank, i);
    case CollectiveKind::kAllToAll:
      return exchange_member(calls, rank, i);
    case CollectiveKind::kBroadcast:
      return broadcast_member(calls, rank, i);
    case CollectiveKind::kBarrier:
      return;
  }
}

}  // namespace

LocalMeetings::LocalMeetings(int size, std::chrono::milliseconds timeout)
    : size_(size), timeout_(timeout), left_(static_cast<std::size_t>(size), false) {}

void LocalMeetings::perform(const ResolvedCollective& call) {
  const std::shared_ptr<Meeting> meeting = arrive(call);
  std::exception_ptr failure;
  try {
    for (std::size_t i = 0; i < call.members.size(); ++i)
      move_member(meeting->calls, call.site.rank, i);
  } catch (...) {
    failure = std::current_exception();
  }
  // Also after a failure: the others wait for every rank, without a deadline.
  const int failed = depart(*meeting, call, failure != nullptr);
  if (failure) std::rethrow_exception(failure);
  if (failed < 0) return;
  Lock lock(mutex_);
  set_aborted(failed, fmt::format("{} could not move its data", call.str()));
  throw_aborted(call, fmt::format("was given up: {}", abort_->reason));
}

std::shared_ptr<LocalMeetings::Meeting> LocalMeetings::arrive(const ResolvedCollective& call) {
  Lock lock(mutex_);
  if (abort_) throw_aborted(call, fmt::format("was given up: {}", abort_->reason));
  const std::shared_ptr<Meeting> meeting = meeting_of(call);
  check_agreement(*meeting, call);
  const ResolvedCollective*& place = meeting->calls[static_cast<std::size_t>(call.site.rank)];
  place = &call;
  if (++meeting->arrived == size_) {
    meeting->changed.notify_all();
    return meeting;
  }
  try {
    wait_for_peers(*meeting, call, lock);
  } catch (...) {
    // Nobody may meet a call that is gone. The lock is held, and not all have arrived.
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
  meetings_.emplace(call.site.sequence, made);
  return made;
}

void LocalMeetings::check_agreement(const Meeting& meeting, const ResolvedCollective& call) {
  for (const ResolvedCollective* other : meeting.calls) {
    if (other == nullptr) continue;
    const bool same = other->fingerprint() == call.fingerprint();
    const std::string rows = same ? row_mismatch(call, *other) : std::string();
    if (same && rows.empty()) continue;
    const std::string what =
        same ? fmt::format("does not agree between ranks: {}", rows)
             : fmt::format(
                   "does not agree between ranks: here {}, on rank {} {}; all ranks must "
                   "issue the same collectives in the same order",
                   call.terms(), other->site.rank, other->terms());
    set_aborted(call.site.rank,
                fmt::format("the ranks disagree in collective #{}", call.site.sequence));
    throw_collective_error(call, what);
  }
}

void LocalMeetings::wait_for_peers(Meeting& meeting, const ResolvedCollective& call, Lock& lock) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (meeting.arrived < size_) {
    if (abort_) throw_aborted(call, fmt::format("was given up: {}", abort_->reason));
    if (const std::optional<int> leaver = missing_leaver(meeting)) {
      const std::string what = fmt::format("needs rank {}, which has left the group", *leaver);
      set_aborted(call.site.rank, fmt::format("{} {}", call.str(), what));
      throw_collective_error(call, what);
    }
    if (meeting.changed.wait_until(lock, deadline) == std::cv_status::timeout &&
        meeting.arrived < size_ && !abort_) {
      const std::string what = fmt::format("timed out after {:g} s: {} did not arrive",
                                           std::chrono::duration<double>(timeout_).count(),
                                           ranks_text(missing(meeting)));
      set_aborted(call.site.rank, fmt::format("{} {}", call.str(), what));
      throw_timeout(call, what);
    }
  }
}

int LocalMeetings::depart(Meeting& meeting, const ResolvedCollective& call, bool failed) noexcept {
  Lock lock(mutex_);
  if (failed && meeting.failed < 0) meeting.failed = call.site.rank;
  if (++meeting.departed == size_) {
    meetings_.erase(call.site.sequence);
    meeting.changed.notify_all();
  } else {
    meeting.changed.wait(lock, [&] { return meeting.departed == size_; });
  }
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
  std::lock_guard lock(mutex_);
  set_aborted(rank, reason);
}

void LocalMeetings::set_aborted(int rank, const std::string& reason) {
  if (!abort_) abort_ = {rank, fmt::format("rank {} failed: {}", rank, reason)};
  for (auto& [sequence, meeting] : meetings_) meeting->changed.notify_all();
}

void LocalMeetings::leave(int rank) noexcept {
  std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  for (auto& [sequence, meeting] : meetings_) meeting->changed.notify_all();
}

}  // namespace tessera::distributed
