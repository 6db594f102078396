#pragma once

/// The parent's side of rank processes: starts them, waits for them, stops the rest when one fails,
/// and finds the cause.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/launch/launch_folder.h"
#include "tessera/distributed/launch/rank_output.h"
#include "tessera/distributed/launch/spawn.h"
#include "tessera/distributed/launch/stop_signal.h"

namespace tessera::distributed {

/// One rank process as the parent knows it.
struct RankChild {
  int rank = 0;
  int pid = -1;
  bool running = false;
  bool stopped_by_us = false;
  int status = 0;  ///< of waitpid, once it has ended
  /// Since when the system reports it as stopped, by SIGSTOP for instance, and by which signal.
  std::optional<std::chrono::steady_clock::time_point> stopped_since{};
  int stop_signal = 0;
  bool stopped_too_long = false;  ///< so long that it is the run's failure
  std::int64_t end_time_ns = 0;
  std::shared_ptr<RankPage> page{};
};

class RankSupervisor {
 public:
  /// Starts nothing yet. `first` is the environment of the first of these ranks, but for the folder.
  RankSupervisor(const RankEnvironment& first, int ranks, LaunchFolder& folder);
  /// Kills what still runs.
  ~RankSupervisor();
  RankSupervisor(const RankSupervisor&) = delete;
  RankSupervisor& operator=(const RankSupervisor&) = delete;

  /// `cores`: the share of each rank; empty: all have this process's. Throws Error when the system
  /// refuses a process.
  void start(const std::vector<std::string>& arguments,
             const std::vector<std::vector<int>>& cores = {});
  /// Returns when every rank has ended, and what they printed has been passed on. Ends them when
  /// `failed_elsewhere` says that the run has failed on another node, and when the system has
  /// stopped one of them for longer than `timeout`.
  void wait(std::chrono::milliseconds timeout, const std::function<bool()>& failed_elsewhere);
  const std::vector<RankChild>& children() const { return children_; }
  /// Where the ranks' bodies ended early for a signal.
  EarlyStop early_stop() const;
  /// For the report of this rank's failure: the last lines that it printed, indented, under a
  /// heading; empty if it printed nothing or is none of these ranks.
  std::string last_lines(int rank) const;
  /// RankOutput::failure().
  std::string output_failure() const { return output_.failure(); }

 private:
  void reap();
  void note_stopped(std::chrono::milliseconds timeout);
  std::vector<StopSignal*> working() const;
  bool anything_wrong() const;
  bool all_connected() const;
  void signal_running(int signal);
  void escalate();

  RankEnvironment first_;
  LaunchFolder& folder_;
  std::vector<RankChild> children_;
  RankOutput output_;
  std::optional<std::chrono::steady_clock::time_point> trouble_since_;
};

/// The failure to report, its text with the rank; nothing when all ranks ended well.
std::optional<RankFailure> first_failure_of(const std::vector<RankChild>& children);

}  // namespace tessera::distributed
