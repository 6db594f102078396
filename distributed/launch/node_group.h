#pragma once

/// The launchers of a run, one on each host (node), or where another launcher has started the ranks,
/// one for each of them: they meet before any rank starts, learn of failures from one another, and
/// end together.

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/distributed/launch/foreign_launcher.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/launch/spawn.h"
#include "tessera/distributed/store/tcp_store.h"

namespace tessera::distributed {

/// This process among the launchers of its run.
struct Launcher {
  int number = 0;  ///< of all
  int launchers = 1;
  int ranks = 1;  ///< that each of them starts
  int ranks_per_node = 1;
  bool is_of_rank = false;     ///< each starts one rank of a world that another launcher has made
  bool bind_to_cores = false;  ///< its ranks
  std::string endpoint{};      ///< where they meet; with one launcher empty
  std::string place{};         ///< where the endpoint comes from, if no option names it
  std::string job{};           ///< Credentials::job
  std::string secret_file{};   ///< LaunchOptions::rdzv_secret_file
  std::string local_addr{};    ///< LaunchOptions::local_addr
  std::chrono::milliseconds timeout = kDefaultTimeout;
};
/// For complete options.
Launcher launcher_of(const LaunchOptions& options, const std::optional<ForeignWorld>& world);

class NodeGroup {
 public:
  /// Returns when all launchers are there; if there is one, at once. `call` is the number of the
  /// launch() call. Throws TimeoutError with the missing launchers, Error when the endpoint
  /// cannot be used or the ranks of this launcher could not be reached by the others,
  /// InvalidArgument where the run needs a secret.
  NodeGroup(const Launcher& launcher, int call);
  /// Before finish(): the other launchers take it for a failure of this one.
  ~NodeGroup();
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  /// What the ranks of this launcher need to know, but for their number and folder.
  const RankEnvironment& environment() const { return environment_; }

  /// Whether ranks of another launcher have failed.
  bool failed_elsewhere() const { return failed_; }

  /// Call it when the ranks of this launcher have ended, with this failure or successfully. Tells the
  /// others, waits until all have ended or one has failed, and returns the text to report: empty on
  /// success. A signal to this process ends the wait.
  std::string finish(const std::optional<RankFailure>& failure);

 private:
  void meet();
  void serve(const Endpoint& at, const std::string& run);
  void wait_for_launchers();
  void check_addresses();
  void watch();
  void stop_watch();
  void note_failure(const std::string& text);
  std::string first_failure();
  void wait_for_others();
  std::string name(int number) const;
  std::vector<std::string> names() const;
  std::vector<std::string> clients() const;

  const Launcher launcher_;
  RankEnvironment environment_;
  std::unique_ptr<TcpStoreServer> server_;  // of launcher 0
  std::unique_ptr<TcpStore> store_;         // null with one launcher, as are the next
  std::unique_ptr<TcpStore> watched_;       // a connection of the watch's own, which only waits
  std::thread watcher_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::string failure_;  // as it reads elsewhere
};

/// What tells a run from another one at the same place: "2 nodes of 4 ranks, launch call 1".
std::string run_name(const RankEnvironment& environment);

/// What a rank is called in the store.
std::string rank_name(int rank);

}  // namespace tessera::distributed
