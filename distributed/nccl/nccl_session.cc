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

}  // namespace

NcclSession::NcclSession(const NcclOptions& options)
    : options_(options),
      peers_(options_.store, options_.rank),
      watchdog_(
          options_, peers_,
          [this](const std::string& reason, const NcclWork* failed_work,
                 const std::exception_ptr& error) { abort_works(reason, failed_work, error); }) {}

void NcclSession::check(const ResolvedCollective& call) {
  if (const auto reason = watchdog_.abort_reason()) throw_aborted(call, "was aborted: " + *reason);
}

void NcclSession::watch(NcclWork work) {
  ResolvedCollective call;
  call.site = work.site;
  watchdog_.watch(std::move(work), [weak = weak_from_this()] {
    const auto session = weak.lock();
    if (session != nullptr) session->watchdog_.settle();
    return session != nullptr;
  });
  check(call);  // aborted since the issue
}

void NcclSession::finish(const NcclRankGroup& rank_group) noexcept {
  watchdog_.finish(rank_group);
  peers_.leave(rank_group);
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

void NcclSession::guarded(const ResolvedCollective& call, const std::function<void()>& work) {
  try {
    try {
      work();
    } catch (const NcclAborted&) {
      check(call);
      throw;
    } catch (const NcclFailure& failure) {
      watchdog_.abort_with_peers(failure);
      check(call);
      throw_as_error(failure, call);
    }
  } catch (const std::exception& error) {
    call.ticket.note(FlightState::kFailed);
    abort_works(failure_reason(error, call, options_.rank), nullptr, nullptr);
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
      const std::lock_guard lock(live_mutex_);
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
void NcclSession::abort_apart(const NcclCommunicators& communicators, NcclWatchdog::Ended& ended) {
  try {
    aborter_ = std::jthread([kept = communicators]() mutable {
      const cuda::RelaxedCapture relaxed;             // others may capture
      const NcclCommunicators all = std::move(kept);  // its last owner ends it here
      NcclCommunicator::abort_all(all);
    });
  } catch (const std::exception&) {
    ended.graphs.clear();
    NcclCommunicator::abort_all(communicators);
  }
}

NcclCommunicators NcclSession::live_communicators() {
  NcclCommunicators out;
  const std::lock_guard lock(live_mutex_);
  for (const auto& each : live_) {
    if (auto communicator = each.lock()) out.push_back(std::move(communicator));
  }
  return out;
}

// Host waits and ranks are told before the GPU goes on without results. Graphs go last: they may be
// running, and NCCL, which waits for them, ends what holds them up.
void NcclSession::abort_works(const std::string& reason, const NcclWork* failed_work,
                              const std::exception_ptr& error) noexcept {
  try {
    // Hosts that learn of the failure may end their groups: communicators live until they are aborted.
    const NcclCommunicators live = live_communicators();
    auto ended = watchdog_.end(reason, failed_work, error);
    if (!ended) return;
    for (const auto& [work, failure] : ended->failed) work.ticket.note(FlightState::kFailed);
    peers_.tell_failure(reason);
    if (failed_work != nullptr)
      failed_work->context->report_failure(error);  // a rank hears of one only
    for (const auto& [work, failure] : ended->failed) work.context->report_failure(failure);
    abort_apart(live, *ended);
  } catch (...) {
    // No memory for it: what runs ends at the peers' deadlines.
  }
}

}  // namespace tessera::distributed
