#pragma once

#include <optional>
#include <string>

#include "tessera/tensor/io/file_lock.h"

namespace tessera::distributed {

/// A new folder for this user alone, removed with all it holds at destruction. Where: the system's
/// folder for temporary files. It is marked and locked as long as it is in use, and so the next one
/// knows, and removes, those of this user whose process was killed.
class LaunchFolder {
 public:
  LaunchFolder();  ///< throws Error when it cannot be made or locked
  ~LaunchFolder();
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Removes it now; later calls do nothing.
  void remove() noexcept;

 private:
  std::string path_;
  std::optional<FileLock> lock_;  ///< nothing once the folder is removed
};

}  // namespace tessera::distributed
