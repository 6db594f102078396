#pragma once

/// The parent's side of rank processes: starts them, waits for them, stops the rest when one fails,
/// and finds the cause.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/launch_folder.h"
#include "tessera/distributed/rank_page.h"

namespace tessera::distributed {

/// One rank process as the parent knows it.
struct RankChild {
  int rank = 0;
  int pid = -1;
  bool running = false;
  bool stopped_by_us = false;
  int status = 0;  ///< of waitpid, once it has ended
  std::int64_t end_time_ns = 0;
  std::shared_ptr<RankPage> page{};
};

class RankSupervisor {
 public:
  /// Starts nothing yet.
  RankSupervisor(int ranks, LaunchFolder& folder);
  /// Kills what still runs.
  ~RankSupervisor();
  RankSupervisor(const RankSupervisor&) = delete;
  RankSupervisor& operator=(const RankSupervisor&) = delete;

  /// Throws Error when the system refuses a process.
  void start(const std::vector<std::string>& arguments, int call);
  /// Returns when every rank has ended.
  void wait();
  const std::vector<RankChild>& children() const { return children_; }

 private:
  void reap();
  bool anything_wrong() const;
  bool all_connected() const;
  void signal_running(int signal);
  void escalate();

  LaunchFolder& folder_;
  std::vector<RankChild> children_;
  std::optional<std::chrono::steady_clock::time_point> trouble_since_;
};

/// The failure to report, with its rank; empty when all ranks ended well.
std::string first_failure_text(const std::vector<RankChild>& children);

}  // namespace tessera::distributed
