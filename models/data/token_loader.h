#pragma once

/// Token sequences in batches, the same for any number of ranks and threads.

#include <cstdint>
#include <memory>

#include "tessera/models/data/packed_sequences.h"
#include "tessera/tensor/tensor.h"

namespace tessera::models::data {

struct TokenBatch {
  Tensor tokens;   ///< [rows, length], i64, on the host
  Tensor targets;  ///< [rows, length], i64: each token's successor
  std::int64_t step = 0;
  std::int64_t samples = 0;       ///< sequences of the step, over all ranks
  std::int64_t first_sample = 0;  ///< place in the batch of the first row
  std::int64_t padded_rows = 0;   ///< the most rows that a rank has
  std::int64_t rows() const { return tokens.dim(0); }
};

struct TokenLoaderOptions {
  std::int64_t batch = 16;  ///< sequences of a step, over all ranks
  std::uint64_t seed = 1;
  int ranks = 1;
  int rank = 0;
  int prefetch = 2;  ///< batches that a thread reads ahead; 0: read when asked for
};

/// The batches of a run: step k has the sequences that models::BatchOrder gives it, split by the
/// chunk rule. Used by one thread.
class TokenLoader {
 public:
  /// `sequences` outlives it. Throws InvalidArgument for a batch below 1, a rank outside or a
  /// negative prefetch.
  TokenLoader(const PackedSequences& sequences, const TokenLoaderOptions& options);
  ~TokenLoader();  ///< waits for a read that is under way
  std::int64_t steps_per_epoch() const;
  /// The batch of a step, counted from 1. Steps in order find theirs read ahead; any other is read
  /// at once, and reading ahead goes on from there: so resuming at a step needs no replay, and the
  /// state of a loader is the number of the step. Rethrows what reading threw.
  TokenBatch load(std::int64_t step);

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace tessera::models::data
