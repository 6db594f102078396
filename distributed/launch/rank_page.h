#pragma once

/// What a rank process tells its parent: a page of memory that both map, readable also after the
/// rank was killed.

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "tessera/distributed/flight_recorder.h"
#include "tessera/distributed/launch/rank_failure.h"
#include "tessera/distributed/launch/stop_signal.h"

namespace tessera::distributed {

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
