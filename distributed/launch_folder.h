#pragma once

#include <string>

namespace tessera::distributed {

/// A new folder for this user alone, removed with all it holds at destruction. Where: the system's
/// folder for temporary files.
class LaunchFolder {
 public:
  LaunchFolder();  ///< throws Error when it cannot be made
  ~LaunchFolder();
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Removes it now; later calls do nothing.
  void remove() noexcept;

 private:
  std::string path_;
  bool removed_ = false;
};

/// While it lives, SIGINT, SIGTERM and SIGHUP (those that are not ignored) are remembered instead
/// of having their effect; at destruction the first one has it. One at a time in a process.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  static int received();  ///< the first signal, or 0
};

}  // namespace tessera::distributed
