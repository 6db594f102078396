#include "tessera/distributed/world.h"

#include <utility>

namespace tessera::distributed {

World::World(std::shared_ptr<ProcessGroup> group, Device device,
             std::shared_ptr<RankContext> context)
    : group_(std::move(group)),
      device_(device),
      context_(std::move(context)),
      mesh_("data", group_, device) {}

}  // namespace tessera::distributed
