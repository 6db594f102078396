// How GPT is sharded over ranks.
//
// - Groups: each block; the root has embeddings, last norm and head, which may be tied.
// - Recompute: every block, or its feed_forward.
// - Tensor parallelism: heads, the feed-forward's inner width and the vocabulary are sharded. The
//   token embedding and the head (one parameter if they are tied) are the largest parameters of
//   small models. Positions and norms are replicated.

#include "tessera/models/parallelize/parallelize_rules.h"

namespace tessera::models {
namespace {

distributed::ParallelPlan plan() {
  using distributed::ColwiseParallel;
  using distributed::HeadParallel;
  using distributed::Replicate;
  using distributed::RowwiseParallel;
  return {{"token_embedding", RowwiseParallel{}},
          {"blocks.*.attention", HeadParallel{}},
          {"blocks.*.feed_forward.up", ColwiseParallel{}},
          {"blocks.*.feed_forward.down", RowwiseParallel{}},
          {"head", ColwiseParallel{.output_layout = Replicate{}}}};
}

}  // namespace

void parallelize(Gpt& model, const ParallelizeOptions& options) {
  cut_layers(model, options, plan());
  for (PreNormBlock& block : model.blocks()) shard_block(block, "feed_forward", options);
  shard_module(model, options);
}

}  // namespace tessera::models
