#include "tessera/models/parallelize.h"

#include "tessera/fsdp/fully_shard.h"

namespace tessera::models {

void parallelize(MlpStack& model, const fsdp::FullyShardOptions& options) {
  for (auto& [name, block] : model.blocks().children()) fsdp::fully_shard(*block, options);
  fsdp::fully_shard(model, options);
}

}  // namespace tessera::models
