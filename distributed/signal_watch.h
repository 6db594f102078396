#pragma once

/// Signals to a launcher.

namespace tessera::distributed {

/// Delays SIGINT, SIGTERM and SIGHUP, except those that the process ignores. The destructor lets
/// the first one take effect, unless it was handed on. A second one ends the process at once;
/// copies of the first within 0.2 s, as `timeout` and service managers send them, do not count.
/// Nested ones are one: the outermost installs and restores.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  static int received();  ///< the first signal, or 0; 0 again once it was handed on
  /// The ranks see to it: it has no effect of its own any more.
  static void hand_on();
  /// What the first signal would have done without a watch. Returns where there is none, and where
  /// a handler of the program's own returns.
  static void take_effect();
};

/// Ends this process as `signal` does by default, or with exit code 128 + signal where it cannot:
/// signals do not end the first process of a container. Usable in signal handlers.
[[noreturn]] void end_by_signal(int signal);

}  // namespace tessera::distributed
