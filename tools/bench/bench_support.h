#pragma once

// Shared by the benchmarks of sharded training.

#include "tessera/fsdp/fully_shard.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/tools/bench/bench_timing.h"

namespace tessera {

// The bundled transformer with 25.6 million elements in 8 blocks.
inline constexpr models::ModelArgs kBenchTransformer = {
    .n_layers = 8, .vocab_size = 512, .max_seq_len = 256, .dim = 512, .n_heads = 8, .dropout_p = 0};

// Each block is a group; the root has the rest.
inline void shard_transformer(models::Transformer& model, const fsdp::FullyShardOptions& options) {
  for (models::TransformerBlock& block : model.blocks()) fsdp::fully_shard(block, options);
  fsdp::fully_shard(model, options);
}

}  // namespace tessera
