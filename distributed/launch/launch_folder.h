#pragma once

/// What rank processes and their parent share on one host: a folder, and a page of memory for each
/// rank.

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "tessera/distributed/flight_recorder.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/launch/stop_signal.h"
#include "tessera/tensor/io/file_lock.h"

namespace tessera::distributed {

/// The system's folder for temporary files: TMPDIR's, or /tmp if that names no folder.
std::string temporary_folder();

/// A new folder for this user alone, removed with all it holds at destruction, in
/// temporary_folder(). It is marked and locked as long as it is in use, and so the next one
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

// What a rank process tells its parent: a page of memory that both map, readable also after the
// rank was killed.

/// Lies in a file; all zeros is the page of a rank that has not begun.
class RankPage {
 public:
  /// In `folder`, for `rank`. Throw Error when the file cannot be made or mapped.
  static std::shared_ptr<RankPage> create(const std::string& folder, int rank);
  static std::shared_ptr<RankPage> open(const std::string& folder, int rank);

  std::atomic<bool> connected;  ///< it needs the folder no more
  std::atomic<bool> done;       ///< its work ended well
  StopSignal stop;

  /// Replaces an earlier failure. Written by the rank, one thread at a time.
  void set_failure(const RankFailure& failure);
  bool has_failure() const { return failed_.load(std::memory_order_acquire); }
  /// For the parent, when the rank has ended.
  std::optional<RankFailure> failure(int rank) const;

  FlightLog log;

 private:
  std::atomic<bool> failed_;
  bool echo_;
  std::int64_t time_ns_;
  char text_[8192];
};

}  // namespace tessera::distributed
