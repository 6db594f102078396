// How communicators come to be, how calls are issued, and how all of it ends.

#include "tessera/distributed/cuda/nccl_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/tensor/check.h"

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

std::string given_up_text(const std::string& reason) { return "was given up: " + reason; }

std::exception_ptr echo_of(const NcclWork& work, const std::string& reason) {
  const RankScope scope(work.context);  // its rank stands in the text
  ResolvedCollective call;
  call.site = work.site;
  try {
    throw_aborted(call, given_up_text(reason));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

void throw_as_error(const NcclFailure& failure, const ResolvedCollective& call) {
  const std::string text = fmt::format("failed: {}", failure.what());
  if (failure.outcome() == NcclOutcome::kPeer) throw_aborted(call, text);
  if (failure.outcome() == NcclOutcome::kCollective) throw_collective_error(call, text);
  throw_error<DeviceError>(call.site.op.c_str(), "{} {}", call.str(), text);
}

NcclSession::NcclSession(const NcclOptions& options)
    : options_(options), peers_(options.store, options.rank), watcher_([this] { run_watch(); }) {}

NcclSession::~NcclSession() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  watcher_.join();
}

void NcclSession::check(const ResolvedCollective& call) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (!given_up_) return;
    reason = *given_up_;
  }
  throw_aborted(call, given_up_text(reason));
}

// Whoever connects is not watched, so it looks itself.
void NcclSession::look_around(const ResolvedCollective& call) {
  check(call);
  if (const auto failure = peers_.failure()) {
    give_up(*failure, nullptr, nullptr);
    check(call);
  }
}

void NcclSession::throw_late(std::span<const NcclTeam> teams, const ResolvedCollective& call) {
  std::vector<int> absent;
  for (const NcclTeam& team : teams) {
    for (const int rank : peers_.absent(team)) absent.push_back(rank);
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

void NcclSession::await_id(const NcclTeam& team, const ResolvedCollective& call,
                           Clock::time_point deadline, std::string& id) {
  for (;;) {
    if (auto given = peers_.take_id(team, std::min(kTick, options_.timeout))) {
      id = std::move(*given);
      return;
    }
    look_around(call);
    if (Clock::now() >= deadline) throw_late({&team, 1}, call);
  }
}

void NcclSession::await_ready(std::span<const NcclTeam> teams,
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
    if (Clock::now() >= deadline) throw_late(teams, call);
    pause(looks);
  }
}

// NCCL knows only that another rank has failed; that one may have said why.
void NcclSession::hear_of_peers(const NcclFailure& failure) {
  if (failure.outcome() != NcclOutcome::kPeer) return;
  if (const auto reason = peers_.failure()) give_up(*reason, nullptr, nullptr);
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
    give_up(reason_of(error, call), nullptr, nullptr);
    throw;
  }
}

NcclCommunicators NcclSession::connect(std::span<const NcclTeam> teams,
                                       const ResolvedCollective& call) {
  NcclCommunicators out;
  if (teams.empty()) return out;
  call.ticket.note(FlightState::kWaiting);
  guarded(call, [&] {
    const auto deadline = Clock::now() + options_.timeout;
    std::vector<std::string> ids(teams.size());
    // First what others wait for, then what this rank waits for.
    for (std::size_t i = 0; i < teams.size(); ++i) {
      if (teams[i].place == 0) peers_.give_id(teams[i], ids[i] = make_nccl_id());
      peers_.come(teams[i]);
    }
    for (std::size_t i = 0; i < teams.size(); ++i) {
      if (ids[i].empty()) await_id(teams[i], call, deadline, ids[i]);
      out.push_back(std::make_shared<NcclCommunicator>(
          NcclCommunicator::Options{.name = call.site.group,
                                    .id = ids[i],
                                    .rank = teams[i].place,
                                    .size = static_cast<int>(teams[i].ranks.size()),
                                    .device = options_.device}));
      const std::lock_guard lock(mutex_);
      std::erase_if(live_, [](const auto& each) { return each.expired(); });
      live_.push_back(out.back());
    }
    await_ready(teams, out, call);
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
    give_up(fmt::format("rank {} failed: {}", options_.rank, reason), nullptr, nullptr);
  } catch (...) {
    // No memory for a reason: the watch ends what runs at its deadline.
  }
}

// Host waits and ranks are told before the GPU goes on without results.
void NcclSession::give_up(const std::string& reason, const NcclWork* culprit,
                          const std::exception_ptr& error) noexcept {
  try {
    std::vector<std::pair<NcclWork, std::exception_ptr>> failed;
    NcclCommunicators communicators;
    {
      const std::lock_guard lock(mutex_);
      if (given_up_) return;
      given_up_ = reason;
      for (const NcclWork& work : works_) {
        const bool is_culprit = culprit != nullptr && work.done == culprit->done;
        failed.emplace_back(work, is_culprit ? error : echo_of(work, reason));
      }
      works_.clear();
      for (const auto& each : live_) {
        if (auto communicator = each.lock()) communicators.push_back(std::move(communicator));
      }
    }
    for (const auto& [work, failure] : failed) {
      work.ticket.note(FlightState::kFailed);
      work.stream.cuda_queue().fail(failure);
    }
    peers_.tell_failure(reason);
    if (culprit != nullptr) culprit->context->report_failure(error);  // a rank hears of one only
    for (const auto& [work, failure] : failed) work.context->report_failure(failure);
    NcclCommunicator::abort_all(communicators);
    changed_.notify_all();
  } catch (...) {
    // No memory for it: what runs ends at the peers' deadlines.
  }
}

}  // namespace tessera::distributed
