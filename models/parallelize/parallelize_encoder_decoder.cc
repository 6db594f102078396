// How the encoder-decoder is sharded over ranks.
//
// - Groups: each block of encoder and decoder; the root has embeddings, positions, last norms and
//   head, which may be tied.
// - Recompute: every block, or its feed_forward.
// - Tensor parallelism: heads of both attentions, the feed-forward's inner width and the vocabulary
//   are sharded; positions and norms are replicated.

#include "tessera/models/parallelize/parallelize_rules.h"

namespace tessera::models {
namespace {

distributed::ParallelPlan plan() {
  using distributed::ColwiseParallel;
  using distributed::HeadParallel;
  using distributed::Replicate;
  using distributed::RowwiseParallel;
  return {{"*_embedding", RowwiseParallel{}},
          {"*coder.*.attention", HeadParallel{}},
          {"decoder.*.cross_attention", HeadParallel{}},
          {"*coder.*.feed_forward.up", ColwiseParallel{}},
          {"*coder.*.feed_forward.down", RowwiseParallel{}},
          {"head", ColwiseParallel{.output_layout = Replicate{}}}};
}

}  // namespace

void parallelize(EncoderDecoder& model, const ParallelizeOptions& options) {
  cut_layers(model, options, plan());
  for (PreNormBlock& block : model.encoder_blocks()) shard_block(block, "feed_forward", options);
  for (DecoderBlock& block : model.decoder_blocks()) shard_block(block, "feed_forward", options);
  shard_module(model, options);
}

}  // namespace tessera::models
