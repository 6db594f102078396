#pragma once

/// The launchers of a run on several hosts, one on each: they meet before any rank starts, learn of
/// failures from one another, and end together.

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tessera/distributed/launch/launch.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/launch/spawn.h"
#include "tessera/distributed/store/tcp_store.h"

namespace tessera::distributed {

class NodeGroup {
 public:
  /// Returns when the launchers of all nodes are there; with one node at once. `call` is the number
  /// of the launch() call. Throws TimeoutError naming the nodes that did not come, Error when the
  /// endpoint cannot be used or this node's ranks could not be reached by the others,
  /// InvalidArgument where the run needs a secret.
  NodeGroup(const LaunchOptions& options, int call);
  /// Before finish(): the other nodes take it for a failure of this one.
  ~NodeGroup();
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  /// What the ranks of this node need to know, but for their number and folder.
  const RankEnvironment& environment() const { return environment_; }

  /// Whether another node has failed.
  bool failed_elsewhere() const { return failed_; }

  /// Call it when this node's ranks have ended, with this failure or successfully. Tells the other
  /// nodes, waits until all nodes have ended or one has failed, and returns the text to report:
  /// empty on success. A signal to this process ends the wait.
  std::string finish(const std::optional<RankFailure>& failure);

 private:
  void meet(const LaunchOptions& options);
  void wait_for_nodes(const LaunchOptions& options);
  void check_addresses();
  void watch();
  void stop_watch();
  void note_failure(const std::string& text);
  std::string first_failure();
  void wait_for_others();

  int node_;
  int nodes_;
  RankEnvironment environment_;
  std::unique_ptr<TcpStoreServer> server_;  // on node 0
  std::unique_ptr<TcpStore> store_;         // null with one node, as are the next
  std::unique_ptr<TcpStore> watched_;       // a connection of the watch's own, which only waits
  std::thread watcher_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::string failure_;  // as it reads on other nodes
};

/// What tells a run from another one at the same place: "2 nodes of 4 ranks, launch call 1".
std::string run_name(const RankEnvironment& environment);

/// What a rank is called in the store.
std::string rank_name(int rank);

}  // namespace tessera::distributed
