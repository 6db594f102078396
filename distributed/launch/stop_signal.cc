#include "tessera/distributed/launch/stop_signal.h"

#include <signal.h>

#include <algorithm>

#include "tessera/distributed/launch/signal_watch.h"

namespace tessera::distributed {

void StopSignal::ask(int signal) {
  int none = 0;
  asked.compare_exchange_strong(none, signal);
}

bool hand_on_signal(const std::vector<StopSignal*>& ranks) {
  const int signal = SignalWatch::received();
  if (signal != SIGINT && signal != SIGTERM) return false;
  const auto heeds = [](const StopSignal* rank) { return rank->heeded.load(); };
  if (!std::all_of(ranks.begin(), ranks.end(), heeds)) return false;
  for (StopSignal* rank : ranks) rank->ask(signal);
  SignalWatch::hand_on();
  return true;
}

EarlyStop early_stop_of(const std::vector<StopSignal*>& ranks) {
  for (const StopSignal* rank : ranks)
    if (const int signal = rank->stopped_by; signal != 0)
      return {.signal = signal, .steps = rank->steps};
  return {};
}

}  // namespace tessera::distributed
