#include "tessera/tests/support/fsdp/sharding_modes.h"

#include <algorithm>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"

namespace tessera::testing {
namespace {

void shard_one(nn::Module& group, const ShardModelOptions& options) {
  distributed::DeviceMesh mesh =
      options.mesh_of_group ? options.mesh_of_group(group) : options.mesh;
  if (!mesh.defined()) mesh = options.mesh;
  if (options.strategy == ShardingStrategy::kReplicate) {
    fsdp::replicate(
        group,
        {.mesh = mesh, .mixed_precision = options.mixed_precision, .offload = options.offload});
    return;
  }
  const bool reshard = options.strategy == ShardingStrategy::kFull ||
                       options.strategy == ShardingStrategy::kHybridFull;
  fsdp::fully_shard(group, {.mesh = mesh,
                            .reshard_after_forward = reshard,
                            .mixed_precision = options.mixed_precision,
                            .offload = options.offload});
}

}  // namespace

const char* value_name(InitMode mode) {
  switch (mode) {
    case InitMode::kBefore:
      return "before";
    case InitMode::kAfter:
      return "after";
    case InitMode::kDeferred:
      return "deferred";
  }
  return "?";
}

const char* value_name(ShardingStrategy strategy) {
  switch (strategy) {
    case ShardingStrategy::kFull:
      return "full";
    case ShardingStrategy::kGrad:
      return "grad";
    case ShardingStrategy::kReplicate:
      return "replicate";
    case ShardingStrategy::kHybridFull:
      return "hybrid_full";
    case ShardingStrategy::kHybridGrad:
      return "hybrid_grad";
  }
  return "?";
}

bool is_hybrid(ShardingStrategy strategy) {
  return strategy == ShardingStrategy::kHybridFull || strategy == ShardingStrategy::kHybridGrad;
}

distributed::DeviceMesh mesh_of(ShardingStrategy strategy, const distributed::World& world) {
  if (!is_hybrid(strategy)) return world.mesh();
  return distributed::hybrid_mesh(world, world.size() % 2 == 0 ? world.size() / 2 : world.size());
}

void shard_model(TestModel& model, const ShardModelOptions& options) {
  std::vector<nn::Module*> groups = model.groups();
  if (std::find(groups.begin(), groups.end(), &model.root()) == groups.end())
    groups.push_back(&model.root());
  for (nn::Module* group : groups) {
    ShardModelOptions of_group = options;
    // Inner modules keep their dtype; only the model's result is cast.
    if (group != &model.root()) of_group.mixed_precision.output_dtype.reset();
    shard_one(*group, of_group);
  }
}

}  // namespace tessera::testing
