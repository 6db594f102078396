// How LLaMA is sharded over ranks.
//
// - Groups: each block; the root has token embedding, last norm and head.
// - Recompute: every block, or its feed_forward.
// - Tensor parallelism: heads (the number of key-value heads must be a multiple of the ranks), the
//   feed-forward's inner width and the vocabulary are sharded; norms are replicated.

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
          {"blocks.*.feed_forward.gate", ColwiseParallel{}},
          {"blocks.*.feed_forward.up", ColwiseParallel{}},
          {"blocks.*.feed_forward.down", RowwiseParallel{}},
          {"head", ColwiseParallel{.output_layout = Replicate{}}}};
}

}  // namespace

void parallelize(Llama& model, const ParallelizeOptions& options) {
  cut_layers(model, options, plan());
  for (LlamaBlock& block : model.blocks()) shard_block(block, "feed_forward", options);
  shard_module(model, options);
}

}  // namespace tessera::models
