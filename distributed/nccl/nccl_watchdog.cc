#include "tessera/distributed/nccl/nccl_watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "tessera/tensor/check.h"
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

constexpr const char* kGroupHasGone =
    "is part of a CUDA graph, and its group has gone; capture a new graph, with a group that "
    "outlives it";

ResolvedCollective call_at(const CollectiveSite& site) {
  ResolvedCollective call;
  call.site = site;
  return call;
}

std::exception_ptr aborted_error(const NcclWork& work, const std::string& text) {
  const RankScope scope(work.context);  // its rank stands in the text
  try {
    throw_aborted(call_at(work.site), text);
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

void NcclWork::fail(const std::exception_ptr& error) const {
  if (replays != nullptr) return replays->fail(error);
  stream.cuda_queue().fail(error);
}

void throw_as_error(const NcclFailure& failure, const ResolvedCollective& call) {
  const std::string text = fmt::format("failed: {}", failure.what());
  if (failure.outcome() == NcclOutcome::kPeer) throw_aborted(call, text);
  if (failure.outcome() == NcclOutcome::kCollective) throw_collective_error(call, text);
  throw_error<DeviceError>(call.site.op.c_str(), "{} {}", call.str(), text);
}

std::string failure_reason(const std::exception& error, const ResolvedCollective& call, int rank) {
  std::string_view text = error.what();
  for (const std::string& tag :
       {fmt::format("[{}] rank {}: ", call.site.op, rank), fmt::format("[{}] ", call.site.op)}) {
    if (text.starts_with(tag)) text.remove_prefix(tag.size());
  }
  return fmt::format("rank {} failed: {}", rank, text);
}

NcclWatchdog::NcclWatchdog(const NcclOptions& options, NcclPeers& peers, Abort abort)
    : options_(options), peers_(peers), abort_(std::move(abort)), thread_([this] { run(); }) {}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();  // Untimed: it looks at stop_ every tick
}

void NcclWatchdog::watch(NcclWork work, const Witness& witness) {
  const std::shared_ptr<cuda::Replays> replays = work.replays;
  bool is_first_of_graph = false;
  // The GPU may have gone on without results: hosts must not take what they find there for them.
  if (replays == nullptr && witnessed_.insert(work.stream.id()).second)
    work.stream.cuda_queue().add_witness(witness);
  {
    const std::lock_guard lock(mutex_);
    if (abort_reason_) return;
    if (replays != nullptr) {
      is_first_of_graph = add_captured(std::move(work));
    } else {
      works_.push_back(std::move(work));
    }
    if (works_.size() + captured_.size() == 1) changed_.notify_all();
  }
  if (is_first_of_graph) replays->add_witness(witness);
}

// What goes wrong in a replay ends all of it, so its collectives are one work: with the site of the
// first, and the communicators of all.
bool NcclWatchdog::add_captured(NcclWork&& work) {
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
void NcclWatchdog::follow_replays() {
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

void NcclWatchdog::finish(const NcclRankGroup& rank_group) noexcept {
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
}

// A group ends: its communicators wait for the work.
void NcclWatchdog::refuse_graphs(const NcclRankGroup& rank_group) {
  Works graphs;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = captured_.begin(); each != captured_.end();) {
      const auto next = std::next(each);
      if (each->rank_group->key == rank_group.key) graphs.splice(graphs.end(), captured_, each);
      each = next;
    }
  }
  for (const NcclWork& work : graphs) work.replays->refuse(aborted_error(work, kGroupHasGone));
}

// Graphs are refused before hosts learn of it, and these do not look between what is over and what
// is noted: all of it is under the lock.
std::optional<NcclWatchdog::Ended> NcclWatchdog::end(const std::string& reason,
                                                     const NcclWork* failed_work,
                                                     const std::exception_ptr& error) {
  Ended out;
  const std::string echo = "was aborted: " + reason;
  const std::lock_guard lock(mutex_);
  if (abort_reason_) return std::nullopt;
  abort_reason_ = reason;
  try {
    follow_replays();
  } catch (const std::exception&) {
    // The GPU takes no more work: what was seen of replays fails.
  }
  for (const NcclWork& work : captured_)
    out.graphs.push_back(work.replays->refuse(aborted_error(work, echo)));
  captured_.clear();
  for (const NcclWork& work : works_) {
    const bool is_failed_work = failed_work != nullptr && work.done == failed_work->done;
    out.failed.emplace_back(work, is_failed_work ? error : aborted_error(work, echo));
    work.fail(out.failed.back().second);
  }
  works_.clear();
  changed_.notify_all();
  return out;
}

std::optional<std::string> NcclWatchdog::abort_reason() {
  const std::lock_guard lock(mutex_);
  return abort_reason_;
}

void NcclWatchdog::abort_with_peers(const NcclFailure& failure) {
  if (failure.outcome() != NcclOutcome::kPeer) return;
  if (const auto reason = peers_.failure()) abort_(*reason, nullptr, nullptr);
}

void NcclWatchdog::run() {
  const cuda::RelaxedCapture relaxed;  // others may capture
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (works_.empty() && captured_.empty()) {
      // Untimed: nothing is under way.
      changed_.wait(lock, [this] { return stop_ || !works_.empty() || !captured_.empty(); });
      continue;
    }
    changed_.wait_for(lock, kTick, [this] { return stop_; });
    lock.unlock();
    look();
    lock.lock();
  }
}

void NcclWatchdog::settle() {
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
  abort_with_peers(*failure);
  const ResolvedCollective call = call_at(failed->site);
  const RankScope scope(failed->context);  // its rank stands in errors
  try {
    throw_as_error(*failure, call);
  } catch (const std::exception& error) {
    abort_(failure_reason(error, call, options_.rank), &*failed, std::current_exception());
  }
}

// The one that began first, as far as it was seen.
std::optional<NcclWork> NcclWatchdog::oldest_begun() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const NcclWork* oldest = nullptr;
  for (NcclWork& work : works_) {
    if (!work.since && work.begun->reached()) work.since = now;
    if (work.since && (oldest == nullptr || *work.since < *oldest->since)) oldest = &work;
  }
  return oldest == nullptr ? std::nullopt : std::optional(*oldest);
}

void NcclWatchdog::look() {
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
    if (!work)
      return abort_(failure_reason(error, {}, options_.rank), nullptr,
                    nullptr);  // it follows no replays
    work->ticket.note(FlightState::kFailed);
    abort_(failure_reason(error, call_at(work->site), options_.rank), &*work,
           std::current_exception());
  }
}

void NcclWatchdog::look_at(const NcclWork& oldest) {
  const ResolvedCollective call = call_at(oldest.site);
  try {
    for (const auto& communicator : oldest.communicators) communicator->is_ready();
  } catch (const NcclFailure& failure) {
    abort_with_peers(failure);
    throw_as_error(failure, call);
  }
  const auto now = Clock::now();
  if (now >= next_look_at_peers_ && now - *oldest.since >= kTick) {
    next_look_at_peers_ = now + (now - *oldest.since < kLasts ? kTick : kLongTick);
    look_at_peers(oldest, call);
  }
  check_deadline(oldest, call);
}

void NcclWatchdog::look_at_peers(const NcclWork& oldest, const ResolvedCollective& call) {
  if (const auto failure = peers_.failure()) return abort_(*failure, nullptr, nullptr);
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
  if (left && !oldest.done->reached()) throw_collective_error(call, needs_rank_that_left(*left));
}

void NcclWatchdog::check_deadline(const NcclWork& work, const ResolvedCollective& call) {
  if (Clock::now() - *work.since < options_.timeout) return;
  const double seconds = std::chrono::duration<double>(options_.timeout).count();
  if (work.replays != nullptr) {
    if (work.done->reached()) return;
    if (const auto failure = peers_.failure()) return abort_(*failure, nullptr, nullptr);
    throw_timeout(call, fmt::format("or another collective of the same CUDA graph does not end: "
                                    "the replay timed out after {:g} s; a rank may not have "
                                    "replayed its graph",
                                    seconds));
  }
  const std::vector<int> missing =
      work.is_exchange() ? work.peers : peers_.not_arrived(*work.rank_group, work.site.sequence);
  if (work.done->reached()) return;
  // A rank that has aborted does not reply, and is not missing.
  if (const auto failure = peers_.failure()) return abort_(*failure, nullptr, nullptr);
  throw_timeout(call, missing.empty()
                          ? fmt::format("timed out after {:g} s: all ranks have issued it, and it "
                                        "does not end",
                                        seconds)
                          : fmt::format("timed out after {:g} s: {} did not arrive", seconds,
                                        ranks_text(missing)));
}

}  // namespace tessera::distributed
