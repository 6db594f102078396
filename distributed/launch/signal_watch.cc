#include "tessera/distributed/launch/signal_watch.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>

namespace tessera::distributed {
namespace {

constexpr std::array kWatched = {SIGINT, SIGTERM, SIGHUP};
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kCopies{200};
constexpr int kExitBySignal = 128;  // what a shell reports of a process that a signal ended

std::atomic<int> pending{0};
std::atomic<Clock::rep> first_at{0};  // 0: none yet
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<Clock::rep>::is_always_lock_free,
              "they are written by a signal handler");

std::mutex watches_mutex;
int watches = 0;
std::array<struct sigaction, kWatched.size()> earlier_actions;

void remember(int signal) {
  const Clock::rep now = Clock::now().time_since_epoch().count();
  Clock::rep first = 0;
  if (first_at.compare_exchange_strong(first, now))
    pending = signal;
  else if (Clock::duration(now - first) > kCopies)
    end_by_signal(signal);
}

}  // namespace

SignalWatch::SignalWatch() {
  const std::lock_guard lock(watches_mutex);
  if (++watches > 1) return;
  pending = 0;
  first_at = 0;
  for (std::size_t i = 0; i < kWatched.size(); ++i) {
    struct sigaction action = {};
    action.sa_handler = &remember;
    action.sa_flags = SA_RESTART;  // rank threads write files meanwhile
    sigaction(kWatched[i], nullptr, &earlier_actions[i]);
    if (earlier_actions[i].sa_handler != SIG_IGN) sigaction(kWatched[i], &action, nullptr);
  }
}

SignalWatch::~SignalWatch() {
  {
    const std::lock_guard lock(watches_mutex);
    if (--watches > 0) return;
    for (std::size_t i = 0; i < kWatched.size(); ++i)
      sigaction(kWatched[i], &earlier_actions[i], nullptr);
  }
  take_effect();
}

int SignalWatch::received() { return pending; }

void SignalWatch::hand_on() { pending = 0; }

void SignalWatch::take_effect() {
  const int signal = pending.exchange(0);
  const auto* const watched = std::find(kWatched.begin(), kWatched.end(), signal);
  if (watched == kWatched.end()) return;
  const struct sigaction& earlier =
      earlier_actions[static_cast<std::size_t>(watched - kWatched.begin())];
  if (earlier.sa_handler == SIG_DFL) end_by_signal(signal);
  sigaction(signal, &earlier, nullptr);
  raise(signal);
}

void end_by_signal(int signal) {
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  sigaction(signal, &by_default, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
  _exit(kExitBySignal + signal);
}

}  // namespace tessera::distributed
