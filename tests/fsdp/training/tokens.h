#pragma once

/// models::Transformer in FSDP's tests: small sizes, batches of tokens, one group per block.

#include <cstdint>
#include <string>

#include "tessera/autograd/ops/nn.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/fsdp/training/side_by_side.h"

namespace tessera::testing {

/// Odd sizes except for dim, which the heads divide.
inline models::ModelArgs small_transformer(int layers = 2, bool tied = true) {
  return {.layers = layers,
          .vocab_size = 11,
          .max_seq_len = 7,
          .dim = 12,
          .heads = 3,
          .dropout = 0,
          .weight_tying = tied,
          .dtype = DType::kF64};
}

inline Tensor random_tokens(const Shape& shape, std::int64_t below, std::uint64_t seed) {
  const Tensor x = Tensor::empty(shape, {.dtype = DType::kI64});
  random::fill_integers(x, random::named_key(seed, "tokens"), random::whole(shape), 0, below);
  return x;
}

/// Cross entropy summed over this rank's tokens, over `count` of the whole batch; see half_squares.
inline Variable token_loss(const Variable& logits, const Tensor& targets, std::int64_t count,
                           int ranks = 1) {
  const Variable total = cross_entropy(logits, targets, {.reduction = LossReduction::kSum});
  return mul(total, ranks / static_cast<double>(count));
}

/// A batch of sequences for each step and pass, and an arbitrary target for each token.
struct TokenBatch {
  std::int64_t sequences = 5;
  std::int64_t length = 6;
  std::int64_t vocabulary = 11;
  DataRank ranks;

  Tensor tokens(int step, int pass) const { return drawn(step, pass, 0); }
  Tensor targets(int step, int pass) const { return drawn(step, pass, 1); }
  std::int64_t count() const { return sequences * length; }

 private:
  Tensor drawn(int step, int pass, int what) const {
    const auto seed = static_cast<std::uint64_t>((step * 16 + pass) * 2 + what);
    return random_tokens({sequences, length}, vocabulary, seed);
  }
};

inline SideBySide over_tokens(std::string what, models::Transformer& sharded,
                              models::Transformer& reference, const TokenBatch& batch) {
  return {.what = std::move(what),
          .sharded = sharded,
          .reference = reference,
          .sharded_loss =
              [&sharded, batch](int step, int pass) {
                return token_loss(sharded(rows_of_rank(batch.tokens(step, pass), batch.ranks)),
                                  rows_of_rank(batch.targets(step, pass), batch.ranks),
                                  batch.count(), batch.ranks.size);
              },
          .reference_loss =
              [&reference, batch](int step, int pass) {
                return token_loss(reference(batch.tokens(step, pass)), batch.targets(step, pass),
                                  batch.count());
              }};
}

/// Shards each block, then the root, with equal options.
inline void shard_transformer(models::Transformer& model, const fsdp::FullyShardOptions& options) {
  for (models::TransformerBlock& block : model.blocks()) fsdp::fully_shard(block, options);
  fsdp::fully_shard(model, options);
}
inline void replicate_transformer(models::Transformer& model,
                                  const fsdp::ReplicateOptions& options) {
  for (models::TransformerBlock& block : model.blocks()) fsdp::replicate(block, options);
  fsdp::replicate(model, options);
}

}  // namespace tessera::testing
