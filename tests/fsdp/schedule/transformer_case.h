#pragma once

/// The bundled Transformer with one group for each block and one for the rest, for which most
/// counts and event orders are stated.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/tests/fsdp/twin.h"

namespace tessera::testing {

/// No dropout, so that ranks and reference compute the same.
inline models::ModelArgs transformer_args(int layers, DType dtype = DType::kF64,
                                          bool weight_tying = true) {
  return {.n_layers = layers, .dropout_p = 0, .weight_tying = weight_tying, .dtype = dtype};
}

/// Shards each block, then the root.
inline void shard_transformer(models::Transformer& model, const fsdp::FullyShardOptions& blocks,
                              const fsdp::FullyShardOptions& root) {
  for (models::TransformerBlock& block : model.blocks()) fsdp::fully_shard(block, blocks);
  fsdp::fully_shard(model, root);
}

/// [rows, length] of token ids below `vocab`, equal on every rank.
inline Tensor token_rows(std::int64_t rows, std::int64_t length, std::int64_t vocab = 8,
                         std::int64_t seed = 0) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < rows * length; ++i)
    ids.push_back((i * i + 5 * i + 3 * seed) % vocab);
  return Tensor::from_vector(ids, {rows, length});
}

/// Half the sum of squares: a loss without communication.
inline Variable local_loss(const Variable& y) { return mul(sum(square(y)), 0.5); }

}  // namespace tessera::testing
