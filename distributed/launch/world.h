#pragma once

/// All ranks of one run, as one of them sees it: made by launch(), handed to the function that
/// every rank runs.

#include <cstdint>
#include <memory>

#include "tessera/distributed/launch/stop_signal.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/process_group.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {

class World {
 public:
  /// `ranks_per_node`: neighbours in rank order are on one node; 0: all ranks are. `stop`: memory
  /// that this rank shares with its launcher; null: the rank cannot be stopped early. Throws
  /// InvalidArgument if the nodes would have different numbers of ranks.
  World(std::shared_ptr<ProcessGroup> group, Device device, std::shared_ptr<RankContext> context,
        int ranks_per_node = 0, std::shared_ptr<StopSignal> stop = nullptr);

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  /// Hosts. Node k has the ranks from k * ranks_per_node() on.
  int nodes() const { return size() / ranks_per_node_; }
  int ranks_per_node() const { return ranks_per_node_; }
  int node_rank() const { return rank() / ranks_per_node_; }   ///< the node of this rank
  int local_rank() const { return rank() % ranks_per_node_; }  ///< its place on its node
  Device device() const { return device_; }
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  /// One axis, "data", over all ranks.
  const DeviceMesh& mesh() const { return mesh_; }
  const std::shared_ptr<RankContext>& context() const { return context_; }

  // A body that can end in order, with its results kept, when the user interrupts the run.

  /// From now on SIGINT and SIGTERM do not end the run, once every rank has called this:
  /// stop_signal() returns the first one, and the body is to end soon. A second one, to the
  /// launcher, ends the run at once, as the first does without this call.
  void heed_stop_signals() { stop_->heeded = true; }
  /// The signal that asks the run to end, or 0. Ranks see it at different moments: agree by a
  /// collective before acting on it.
  int stop_signal() const { return stop_->asked; }
  /// As if `signal` had been sent to the launcher; stop_signal() of this rank returns it, unless
  /// there was one before.
  void ask_to_stop(int signal) { stop_->ask(signal); }
  /// Tells launch() that the body ends early, because of `signal` and after `steps` steps:
  /// LaunchResult has both.
  void stopped_early(int signal, std::int64_t steps) {
    stop_->steps = steps;
    stop_->stopped_by = signal;
  }

 private:
  std::shared_ptr<ProcessGroup> group_;
  Device device_;
  std::shared_ptr<RankContext> context_;
  std::shared_ptr<StopSignal> stop_;
  int ranks_per_node_;
  DeviceMesh mesh_;
};

/// The mesh of hybrid sharding: axes "replicate", over the nodes, and "shard", over the ranks of
/// one. Ranks of a node are neighbours. 0 ranks per node: those that the world has. Throws
/// InvalidArgument where the nodes would have different numbers of ranks. All ranks call it (see
/// DeviceMesh).
DeviceMesh hybrid_mesh(const World& world, int ranks_per_node = 0);

}  // namespace tessera::distributed
