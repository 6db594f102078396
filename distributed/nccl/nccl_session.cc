// How communicators come to be, how calls are issued, and how all of it ends.

#include "tessera/distributed/nccl/nccl_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/device_guard.h"

namespace tessera::distributed {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{20};
constexpr std::chrono::microseconds kLook{50};
// How often is looked without a pause, which is what a call of connected ranks takes, and then with
// short ones; later looks are a tick apart.
constexpr int kBusyLooks = 1000, kQuickLooks = 3000;

void pause(int looks) {
  if (looks < kBusyLooks) {
    std::this_thread::yield();
  } else if (looks < kQuickLooks) {
    std::this_thread::sleep_for(kLook);
  } else {
    std::this_thread::sleep_for(kTick);
  }
}

std::string aborted_text(const std::string& reason) { return "was aborted: " + reason; }

std::exception_ptr echo_of(const NcclWork& work, const std::string& reason) {
  const RankScope scope(work.context);  // its rank stands in the text
  ResolvedCollective call;
  call.site = work.site;
  try {
    throw_aborted(call, aborted_text(reason));
  } catch (...) {
    return std::current_exception();
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

NcclSession::NcclSession(const NcclOptions& options)
    : options_(options),
      peers_(options.store, options.rank),
      watchdog_([this] { run_watchdog(); }) {}

NcclSession::~NcclSession() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  watchdog_.join();
  if (aborter_.joinable()) aborter_.join();
}

void NcclSession::check(const ResolvedCollective& call) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_) return;
    reason = *abort_reason_;
  }
  throw_aborted(call, aborted_text(reason));
}

// A rank that is connecting is not watched, so it checks by itself.
void NcclSession::look_around(const ResolvedCollective& call) {
  check(call);
  if (const auto failure = peers_.failure()) {
    abort_works(*failure, nullptr, nullptr);
    check(call);
  }
}

void NcclSession::throw_late(std::span<const NcclRankGroup> rank_groups,
                             const ResolvedCollective& call) {
  std::vector<int> absent;
  for (const NcclRankGroup& rank_group : rank_groups) {
    for (const int rank : peers_.absent(rank_group)) absent.push_back(rank);
  }
  const double seconds = std::chrono::duration<double>(options_.timeout).count();
  if (absent.empty())
    throw_timeout(call, fmt::format("timed out after {:g} s: NCCL does not connect the ranks, "
                                    "though all have come; NCCL_DEBUG=INFO in the environment "
                                    "makes it say where it stands",
                                    seconds));
  throw_timeout(
      call, fmt::format("timed out after {:g} s: {} did not arrive", seconds, ranks_text(absent)));
}

void NcclSession::await_id(const NcclRankGroup& rank_group, const ResolvedCollective& call,
                           Clock::time_point deadline, std::string& id) {
  for (;;) {
    if (auto given = peers_.take_id(rank_group, std::min(kTick, options_.timeout))) {
      id = std::move(*given);
      return;
    }
    look_around(call);
    if (Clock::now() >= deadline) throw_late({&rank_group, 1}, call);
  }
}

void NcclSession::await_ready(std::span<const NcclRankGroup> rank_groups,
                              const NcclCommunicators& communicators,
                              const ResolvedCollective& call) {
  const auto deadline = Clock::now() + options_.timeout;
  const auto is_ready = [](const auto& each) { return each->is_ready(); };
  for (int looks = 0; !std::all_of(communicators.begin(), communicators.end(), is_ready); ++looks) {
    if (looks < kQuickLooks) {
      check(call);
    } else {
      look_around(call);
    }
    if (Clock::now() >= deadline) throw_late(rank_groups, call);
    pause(looks);
  }
}

// NCCL knows only that another rank has failed; that one may have said why.
void NcclSession::hear_of_peers(const NcclFailure& failure) {
  if (failure.outcome() != NcclOutcome::kPeer) return;
  if (const auto reason = peers_.failure()) abort_works(*reason, nullptr, nullptr);
}

// As it reads on other ranks: the call without the tag and the rank that stand before it here.
std::string NcclSession::reason_of(const std::exception& error, const ResolvedCollective& call) {
  std::string_view text = error.what();
  for (const std::string& tag : {fmt::format("[{}] rank {}: ", call.site.op, options_.rank),
                                 fmt::format("[{}] ", call.site.op)}) {
    if (text.starts_with(tag)) text.remove_prefix(tag.size());
  }
  return fmt::format("rank {} failed: {}", options_.rank, text);
}

void NcclSession::guarded(const ResolvedCollective& call, const std::function<void()>& work) {
  try {
    try {
      work();
    } catch (const NcclAborted&) {
      check(call);
      throw;
    } catch (const NcclFailure& failure) {
      hear_of_peers(failure);
      check(call);
      throw_as_error(failure, call);
    }
  } catch (const std::exception& error) {
    call.ticket.note(FlightState::kFailed);
    abort_works(reason_of(error, call), nullptr, nullptr);
    throw;
  }
}

NcclCommunicators NcclSession::connect(std::span<const NcclRankGroup> rank_groups,
                                       const ResolvedCollective& call) {
  NcclCommunicators out;
  if (rank_groups.empty()) return out;
  call.ticket.note(FlightState::kWaiting);
  guarded(call, [&] {
    const auto deadline = Clock::now() + options_.timeout;
    std::vector<std::string> ids(rank_groups.size());
    // First what others wait for, then what this rank waits for.
    for (std::size_t i = 0; i < rank_groups.size(); ++i) {
      if (rank_groups[i].place == 0) peers_.give_id(rank_groups[i], ids[i] = make_nccl_id());
      peers_.come(rank_groups[i]);
    }
    for (std::size_t i = 0; i < rank_groups.size(); ++i) {
      if (ids[i].empty()) await_id(rank_groups[i], call, deadline, ids[i]);
      out.push_back(std::make_shared<NcclCommunicator>(
          NcclCommunicator::Options{.name = call.site.group,
                                    .id = ids[i],
                                    .rank = rank_groups[i].place,
                                    .size = static_cast<int>(rank_groups[i].ranks.size()),
                                    .device = options_.device}));
      const std::lock_guard lock(mutex_);
      std::erase_if(live_, [](const auto& each) { return each.expired(); });
      live_.push_back(out.back());
    }
    await_ready(rank_groups, out, call);
  });
  return out;
}

std::vector<std::byte*> NcclSession::allocate_slots(
    const std::shared_ptr<NcclCommunicator>& communicator, const ResolvedCollective& call) {
  const NcclSettings& settings = options_.settings;
  const NcclRegistration registration = settings.buffers == NcclBuffers::kSymmetric
                                            ? NcclRegistration::kSymmetric
                                            : NcclRegistration::kLocal;
  std::vector<std::byte*> slots;
  guarded(call, [&] {
    for (int i = 0; i < settings.slots; ++i) {
      slots.push_back(communicator->allocate(settings.slot_bytes, registration));
      await_ready({}, {communicator}, call);
    }
  });
  return slots;
}

void NcclSession::issue(const NcclCommunicators& communicators, const ResolvedCollective& call,
                        const std::function<void()>& calls) {
  std::vector<NcclCommunicator*> all;
  for (const auto& each : communicators) all.push_back(each.get());
  guarded(call, [&] {
    issue_together(all, calls);
    await_ready({}, communicators, call);
  });
}

void NcclSession::abort(const std::string& reason) noexcept {
  try {
    abort_works(fmt::format("rank {} failed: {}", options_.rank, reason), nullptr, nullptr);
  } catch (...) {
    // No memory for a reason: the watchdog ends what runs at its deadline.
  }
}

// On a thread of its own: NCCL waits until graphs of the communicators are gone, and this thread
// may be capturing one.
void NcclSession::abort_apart(Ended& ended) {
  try {
    aborter_ = std::thread([kept = ended.communicators]() mutable {
      const cuda::RelaxedCapture relaxed;             // others may capture
      const NcclCommunicators all = std::move(kept);  // its last owner ends it here
      NcclCommunicator::abort_all(all);
    });
  } catch (const std::exception&) {
    ended.graphs.clear();
    NcclCommunicator::abort_all(ended.communicators);
  }
}

// Graphs are refused before hosts learn of it, and these do not look between what is over and what
// is noted: all of it is under the lock.
std::optional<NcclSession::Ended> NcclSession::end_works(const std::string& reason,
                                                         const NcclWork* failed_work,
                                                         const std::exception_ptr& error) {
  Ended out;
  const std::lock_guard lock(mutex_);
  if (abort_reason_) return std::nullopt;
  abort_reason_ = reason;
  try {
    follow_replays();
  } catch (const std::exception&) {
    // The GPU takes no more work: what was seen of replays fails.
  }
  for (const auto& each : live_) {
    if (auto communicator = each.lock()) out.communicators.push_back(std::move(communicator));
  }
  for (const NcclWork& work : captured_)
    out.graphs.push_back(work.replays->refuse(echo_of(work, reason)));
  captured_.clear();
  for (const NcclWork& work : works_) {
    const bool is_failed_work = failed_work != nullptr && work.done == failed_work->done;
    out.failed.emplace_back(work, is_failed_work ? error : echo_of(work, reason));
    work.fail(out.failed.back().second);
  }
  works_.clear();
  return out;
}

// Host waits and ranks are told before the GPU goes on without results. Graphs go last: they may be
// running, and NCCL, which waits for them, ends what holds them up.
void NcclSession::abort_works(const std::string& reason, const NcclWork* failed_work,
                              const std::exception_ptr& error) noexcept {
  try {
    std::optional<Ended> ended = end_works(reason, failed_work, error);
    if (!ended) return;
    for (const auto& [work, failure] : ended->failed) work.ticket.note(FlightState::kFailed);
    peers_.tell_failure(reason);
    if (failed_work != nullptr)
      failed_work->context->report_failure(error);  // a rank hears of one only
    for (const auto& [work, failure] : ended->failed) work.context->report_failure(failure);
    abort_apart(*ended);
    changed_.notify_all();
  } catch (...) {
    // No memory for it: what runs ends at the peers' deadlines.
  }
}

}  // namespace tessera::distributed
