#include "tessera/distributed/launch/world.h"

#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::distributed {

World::World(std::shared_ptr<ProcessGroup> group, Device device,
             std::shared_ptr<RankContext> context, int ranks_per_node,
             std::shared_ptr<StopSignal> stop)
    : group_(std::move(group)),
      device_(device),
      context_(std::move(context)),
      stop_(stop != nullptr ? std::move(stop) : std::make_shared<StopSignal>()),
      ranks_per_node_(ranks_per_node > 0 ? ranks_per_node : group_->size()),
      mesh_("data", group_, device) {
  TESSERA_CHECK(ranks_per_node >= 0 && size() % ranks_per_node_ == 0, "World",
                "{} ranks cannot be divided among nodes of {}", size(), ranks_per_node);
}

DeviceMesh hybrid_mesh(const World& world, int ranks_per_node) {
  const int ranks = ranks_per_node == 0 ? world.ranks_per_node() : ranks_per_node;
  TESSERA_CHECK(ranks >= 1 && world.size() % ranks == 0, "hybrid_mesh",
                "{} ranks cannot be divided among nodes of {}; pass a divisor", world.size(),
                ranks);
  return {{"replicate", "shard"}, {world.size() / ranks, ranks}, world.group(), world.device()};
}

}  // namespace tessera::distributed
