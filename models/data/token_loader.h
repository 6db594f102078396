#pragma once

/// A text's tokens as samples of equal length, and these in batches, the same for any number of
/// ranks and threads.

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/models/data/token_file.h"
#include "tessera/tensor/tensor.h"

namespace tessera::models::data {

/// A text's tokens as samples of equal length.

/// Tokens divided into sequences of equal length, with documents packed one after another. Sequence
/// i has tokens [i * length, i * length + length]; its last token is only a target. Tokens left
/// over at the end are not used.
class PackedSequences {
 public:
  /// Throws InvalidArgument for a length below 1, and DataError for fewer than length + 1 tokens,
  /// with both numbers.
  PackedSequences(std::shared_ptr<const TokenSpan> tokens, std::int64_t length);
  std::int64_t count() const { return count_; }
  std::int64_t length() const { return length_; }
  /// Reads length + 1 tokens.
  void read(std::int64_t index, std::span<std::int64_t> out) const;

 private:
  std::shared_ptr<const TokenSpan> tokens_;
  std::int64_t length_;
  std::int64_t count_;
};

/// Token sequences in batches, the same for any number of ranks and threads.
struct TokenBatch {
  Tensor tokens;   ///< [rows, length], i64, on the host
  Tensor targets;  ///< [rows, length], i64: each token's successor
  std::int64_t step = 0;
  std::int64_t samples = 0;       ///< sequences in the step, over all ranks
  std::int64_t first_sample = 0;  ///< position in the batch of the first row
  std::int64_t padded_rows = 0;   ///< the largest number of rows of any rank
  std::int64_t rows() const { return tokens.dim(0); }
};

struct TokenLoaderOptions {
  std::int64_t batch = 16;  ///< sequences per step, over all ranks
  std::uint64_t seed = 1;
  int ranks = 1;
  int rank = 0;
  int prefetch = 2;  ///< batches that a thread reads ahead; 0: read in load()
};

/// The batches of a run. Step k has the sequences that models::BatchOrder gives it, split by the
/// chunk rule. Only one thread may use it.
class TokenLoader {
 public:
  /// `sequences` must outlive it. Throws InvalidArgument for a batch below 1, a rank out of range,
  /// or a negative prefetch.
  TokenLoader(const PackedSequences& sequences, const TokenLoaderOptions& options);
  ~TokenLoader();  ///< waits for a read in progress
  std::int64_t steps_per_epoch() const;
  /// Returns the batch of a step, counted from 1. Consecutive steps have been read ahead; any other
  /// step is read at once, and reading ahead continues from there. Resuming at a step therefore
  /// needs no replay, and the step number is the loader's whole state. Rethrows errors of the
  /// reading thread.
  TokenBatch load(std::int64_t step);

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace tessera::models::data
