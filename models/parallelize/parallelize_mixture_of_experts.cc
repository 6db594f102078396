// How the mixture of experts is sharded over ranks.
//
// - Groups: each block; the root has embedding, last norm and head. Tokens are counted over all
//   ranks that share the batch, for capacity and balance.
// - Experts: on every rank, in their block's group. With an expert mesh, each rank of its last axis
//   has a part of them, which is a group of its own over the first axis. Tokens are then sent
//   between ranks, and backward yields gradients that are already summed over the last axis; the
//   group sums over the rest.
// - Recompute: every block, or its feed_forward.
// - Tensor parallelism: heads are sharded; everything else is replicated.

#include <algorithm>

#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/handle.h"
#include "tessera/models/parallelize/parallelize_rules.h"
#include "tessera/tensor/check.h"

namespace tessera::models {
namespace {

constexpr const char* kWhere = "models.parallelize";

distributed::ParallelPlan plan() { return {{"blocks.*.attention", distributed::HeadParallel{}}}; }

std::vector<int> sorted_ranks(const distributed::DeviceMesh& mesh) {
  std::vector<int> ranks = mesh.ranks();
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void check_expert_mesh(const ParallelizeOptions& options) {
  TESSERA_CHECK(
      options.expert_mesh.ndim() == 2 &&
          sorted_ranks(options.expert_mesh) == sorted_ranks(options.mesh),
      kWhere,
      "expert_mesh is {}; it needs two axes, of copies and of experts, over the ranks of mesh, {}",
      options.expert_mesh.str(), options.mesh.str());
}

void shard_experts(Experts& experts, const ParallelizeOptions& options) {
  ParallelizeOptions own = options;
  own.mesh = options.expert_mesh[options.expert_mesh.axes().front()];
  if (own.shard == ShardMode::kHybrid) own.shard = ShardMode::kFull;
  shard_module(experts, own);
  fsdp::of(experts).set_gradient_divide_factor(options.mesh.size());
}

}  // namespace

void parallelize(MixtureOfExperts& model, const ParallelizeOptions& options) {
  check_mesh(options);
  const bool split = options.expert_mesh.defined();
  if (split) check_expert_mesh(options);
  cut_layers(model, options, plan());
  model.share_batch(
      distributed::make_mesh(options.mesh.ndim() == 1 ? options.mesh : options.mesh.flatten()));
  if (split) {
    const std::string& axis = options.expert_mesh.axes().back();
    model.split_experts(distributed::make_mesh(options.expert_mesh[axis]));
  }
  for (MixtureOfExpertsBlock& block : model.blocks()) {
    if (split) shard_experts(block.feed_forward().experts(), options);
    shard_block(block, "feed_forward", options);
  }
  shard_module(model, options);
}

}  // namespace tessera::models
