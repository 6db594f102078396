// How LLaMA is spread over ranks.
//
// Groups: every block one; the root has the table of tokens, last norm and head.
// Recompute: every block, or its feed_forward.
// Tensor parallelism: heads (key-value heads must be a multiple of the ranks), the feed-forward's
// inner width and the vocabulary are divided; norms are whole on every rank.

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
