// How the small Transformer is sharded over ranks.
//
// - Groups: each block; the root has embeddings, last norm and head, which may be tied.
// - Recompute: every block, or its feed_forward.
// - Tensor parallelism: heads and the feed-forward's inner width are sharded; embeddings, norms and
//   head are replicated.

#include "tessera/models/parallelize/parallelize_rules.h"

namespace tessera::models {
namespace {

distributed::ParallelPlan plan() {
  using distributed::ColwiseParallel;
  using distributed::RowwiseParallel;
  return {{"layers.*.attention.wq", ColwiseParallel{}},
          {"layers.*.attention.wk", ColwiseParallel{}},
          {"layers.*.attention.wv", ColwiseParallel{}},
          {"layers.*.attention.wo", RowwiseParallel{}},
          {"layers.*.feed_forward.w1", ColwiseParallel{}},
          {"layers.*.feed_forward.w2", RowwiseParallel{}}};
}

}  // namespace

void parallelize(Transformer& model, const ParallelizeOptions& options) {
  cut_layers(model, options, plan());
  for (TransformerBlock& block : model.blocks()) shard_block(block, "feed_forward", options);
  shard_module(model, options);
}

}  // namespace tessera::models
