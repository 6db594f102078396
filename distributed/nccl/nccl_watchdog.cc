// The session's watchdog over what was issued.

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "tessera/distributed/nccl/nccl_session.h"
#include "tessera/tensor/cuda/device_guard.h"

namespace tessera::distributed {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{20};
constexpr milliseconds kLongTick{500};  // between looks at the store, when a collective lasts
constexpr milliseconds kLasts{2000};
constexpr milliseconds kShortTick{1};
// Messages of a rank that has left are on their way no longer than this.
constexpr milliseconds kLastMessages{1000};

ResolvedCollective call_at(const CollectiveSite& site) {
  ResolvedCollective call;
  call.site = site;
  return call;
}

std::exception_ptr end_of_communicator(const NcclWork& work) {
  const RankScope scope(work.context);  // its rank stands in the text
  try {
    throw_aborted(call_at(work.site),
                  "is part of a CUDA graph, and its group has gone; capture a new graph, with a "
                  "group that outlives it");
  } catch (...) {
    return std::current_exception();
  }
}

// Appends what `all` lacks.
template <class T>
void unite(std::vector<T>& all, const std::vector<T>& more) {
  for (const T& each : more) {
    if (std::find(all.begin(), all.end(), each) == all.end()) all.push_back(each);
  }
}

}  // namespace

void NcclSession::watch(NcclWork work) {
  const ResolvedCollective call = call_at(work.site);
  const std::shared_ptr<cuda::Replays> replays = work.replays;
  bool is_first_of_graph = false;
  if (replays == nullptr) be_witness_on(work.stream);
  {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_) {
      if (replays != nullptr) {
        is_first_of_graph = add_captured(std::move(work));
      } else {
        works_.push_back(std::move(work));
      }
      if (works_.size() + captured_.size() == 1) changed_.notify_all();
    }
  }
  if (is_first_of_graph) replays->add_witness(witness());
  check(call);  // aborted since the issue
}

std::function<bool()> NcclSession::witness() {
  return [weak = weak_from_this()] {
    const auto session = weak.lock();
    if (session != nullptr) session->settle();
    return session != nullptr;
  };
}

// The GPU may have gone on without results: hosts must not take what they find there for them.
void NcclSession::be_witness_on(const Stream& stream) {
  if (witnessed_.insert(stream.id()).second) stream.cuda_queue().add_witness(witness());
}

// What goes wrong in a replay ends all of it, so its collectives are one work: with the site of the
// first, and the communicators of all.
bool NcclSession::add_captured(NcclWork&& work) {
  for (NcclWork& each : captured_) {
    if (each.replays != work.replays || each.rank_group->key != work.rank_group->key ||
        each.is_exchange() != work.is_exchange())
      continue;
    unite(each.communicators, work.communicators);
    unite(each.peers, work.peers);
    return false;
  }
  captured_.push_back(std::move(work));
  return true;
}

// One at a time: what comes later cannot begin before it, and fails with it.
void NcclSession::follow_replays() {
  for (auto each = captured_.begin(); each != captured_.end();) {
    const bool is_last = each->replays->are_over();
    const cuda::Replay oldest = each->replays->oldest();
    if (oldest.done != nullptr && oldest.done != each->done) {
      each->begun = oldest.begun;
      each->done = oldest.done;
      works_.push_back(*each);
    }
    each = is_last ? captured_.erase(each) : std::next(each);
  }
}

void NcclSession::finish(const NcclRankGroup& rank_group) noexcept {
  const auto of_communicator = [&rank_group](const NcclWork& work) {
    return work.rank_group->key == rank_group.key;
  };
  try {
    for (;;) {
      settle();
      std::unique_lock lock(mutex_);
      if (std::none_of(works_.begin(), works_.end(), of_communicator)) break;
      changed_.wait_for(lock, kShortTick);
    }
  } catch (...) {
    // The GPU accepts no more work: the watchdog aborts the work that ran there.
  }
  refuse_graphs(rank_group);
  peers_.leave(rank_group);
}

// A group ends: its communicators wait for the work.
void NcclSession::refuse_graphs(const NcclRankGroup& rank_group) {
  Works graphs;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = captured_.begin(); each != captured_.end();) {
      const auto next = std::next(each);
      if (each->rank_group->key == rank_group.key) graphs.splice(graphs.end(), captured_, each);
      each = next;
    }
  }
  for (const NcclWork& work : graphs) work.replays->refuse(end_of_communicator(work));
}

void NcclSession::run_watchdog() {
  const cuda::RelaxedCapture relaxed;  // others may capture
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (works_.empty() && captured_.empty()) {
      changed_.wait(lock, [this] { return stop_ || !works_.empty() || !captured_.empty(); });
      continue;
    }
    changed_.wait_for(lock, kTick, [this] { return stop_; });
    lock.unlock();
    look();
    lock.lock();
  }
}

void NcclSession::settle() {
  std::optional<NcclWork> failed;
  std::optional<NcclFailure> failure;
  try {
    const std::lock_guard lock(mutex_);
    follow_replays();
    for (auto work = works_.begin(); work != works_.end();) {
      if (!work->done->reached()) {
        ++work;
        continue;
      }
      failed = *work;
      for (const auto& communicator : work->communicators) communicator->is_ready();
      work->ticket.note(FlightState::kDone);
      work = works_.erase(work);
      failed.reset();
    }
  } catch (const NcclAborted&) {
    return;  // aborted meanwhile
  } catch (const NcclFailure& known) {
    failure = known;
  }
  if (!failure) return;
  hear_of_peers(*failure);
  const ResolvedCollective call = call_at(failed->site);
  const RankScope scope(failed->context);  // its rank stands in errors
  try {
    throw_as_error(*failure, call);
  } catch (const std::exception& error) {
    abort_works(reason_of(error, call), &*failed, std::current_exception());
  }
}

// The one that began first, as far as it was seen.
std::optional<NcclWork> NcclSession::oldest_begun() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const NcclWork* oldest = nullptr;
  for (NcclWork& work : works_) {
    if (!work.since && work.begun->reached()) work.since = now;
    if (work.since && (oldest == nullptr || *work.since < *oldest->since)) oldest = &work;
  }
  return oldest == nullptr ? std::nullopt : std::optional(*oldest);
}

void NcclSession::look() {
  std::optional<NcclWork> work;
  try {
    {
      const std::lock_guard lock(mutex_);
      follow_replays();
      if (works_.empty()) return;
      work = works_.front();
    }
    settle();
    if (auto oldest = oldest_begun()) {
      work = std::move(oldest);
      const RankScope scope(work->context);  // its rank stands in errors
      look_at(*work);
    }
  } catch (const NcclAborted&) {
    // Aborted meanwhile.
  } catch (const std::exception& error) {
    if (!work) return abort_works(reason_of(error, {}), nullptr, nullptr);  // it follows no replays
    work->ticket.note(FlightState::kFailed);
    abort_works(reason_of(error, call_at(work->site)), &*work, std::current_exception());
  }
}

void NcclSession::look_at(const NcclWork& oldest) {
  const ResolvedCollective call = call_at(oldest.site);
  try {
    for (const auto& communicator : oldest.communicators) communicator->is_ready();
  } catch (const NcclFailure& failure) {
    hear_of_peers(failure);
    throw_as_error(failure, call);
  }
  const auto now = Clock::now();
  if (now >= next_look_at_peers_ && now - *oldest.since >= kTick) {
    next_look_at_peers_ = now + (now - *oldest.since < kLasts ? kTick : kLongTick);
    look_at_peers(oldest, call);
  }
  check_deadline(oldest, call);
}

void NcclSession::look_at_peers(const NcclWork& oldest, const ResolvedCollective& call) {
  if (const auto failure = peers_.failure()) return abort_works(*failure, nullptr, nullptr);
  peers_.answer();
  // A rank that leaves has finished its replays, perhaps a long one earlier than this rank.
  if (oldest.replays != nullptr) return;
  std::optional<int> left;
  if (!oldest.is_exchange()) {
    left = peers_.left_before(*oldest.rank_group, oldest.site.sequence);
  } else if (Clock::now() - *oldest.since > kLastMessages) {
    const NcclRankGroup others{.key = oldest.rank_group->key, .ranks = oldest.peers};
    left = peers_.left_before(others, std::numeric_limits<std::uint64_t>::max());
  }
  if (left && !oldest.done->reached())
    throw_collective_error(call, fmt::format("needs rank {}, which has left the group", *left));
}

void NcclSession::check_deadline(const NcclWork& work, const ResolvedCollective& call) {
  if (Clock::now() - *work.since < options_.timeout) return;
  const double seconds = std::chrono::duration<double>(options_.timeout).count();
  if (work.replays != nullptr) {
    if (work.done->reached()) return;
    if (const auto failure = peers_.failure()) return abort_works(*failure, nullptr, nullptr);
    throw_timeout(call, fmt::format("or another collective of the same CUDA graph does not end: "
                                    "the replay timed out after {:g} s; a rank may not have "
                                    "replayed its graph",
                                    seconds));
  }
  const std::vector<int> missing =
      work.is_exchange() ? work.peers : peers_.not_arrived(*work.rank_group, work.site.sequence);
  if (work.done->reached()) return;
  // A rank that has aborted does not reply, and is not missing.
  if (const auto failure = peers_.failure()) return abort_works(*failure, nullptr, nullptr);
  throw_timeout(call, missing.empty()
                          ? fmt::format("timed out after {:g} s: all ranks have issued it, and it "
                                        "does not end",
                                        seconds)
                          : fmt::format("timed out after {:g} s: {} did not arrive", seconds,
                                        ranks_text(missing)));
}

}  // namespace tessera::distributed
