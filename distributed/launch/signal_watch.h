#pragma once

/// How a launcher handles SIGINT, SIGTERM and SIGHUP.

namespace tessera::distributed {

/// Installs handlers for SIGINT, SIGTERM and SIGHUP that only record the signal. Signals that the
/// process ignores stay ignored. The destructor restores the previous handlers and calls
/// take_effect(). A second signal ends the process at once; within 0.2 s of the first it is taken
/// for a copy (`timeout` and service managers send them) and dropped. Of nested objects, the
/// outermost installs and restores.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  static int received();  ///< the recorded signal; 0 if there is none or it was handed on
  /// The ranks will end the run: forgets the recorded signal.
  static void hand_on();
  /// Does what the recorded signal would have done before the watch: ends the process, or calls the
  /// program's own handler. Returns if no signal is recorded, or if that handler returns.
  static void take_effect();
};

/// Ends this process by the default action of `signal`. If that has no effect, because this is the
/// first process of a container, exits with 128 + signal. Async-signal-safe.
[[noreturn]] void end_by_signal(int signal);

}  // namespace tessera::distributed
