#pragma once

/// All ranks of one run, as one of them sees it: made by launch(), handed to the function that
/// every rank runs.

#include <memory>

#include "tessera/distributed/device_mesh.h"
#include "tessera/distributed/process_group.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/stream.h"

namespace tessera::distributed {

class World {
 public:
  World(std::shared_ptr<ProcessGroup> group, Device device, std::shared_ptr<RankContext> context);

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  Device device() const { return device_; }
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  /// One axis, "data", over all ranks.
  const DeviceMesh& mesh() const { return mesh_; }
  const std::shared_ptr<RankContext>& context() const { return context_; }

 private:
  std::shared_ptr<ProcessGroup> group_;
  Device device_;
  std::shared_ptr<RankContext> context_;
  DeviceMesh mesh_;
};

}  // namespace tessera::distributed
