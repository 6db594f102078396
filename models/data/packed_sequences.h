#pragma once

/// A text's tokens as samples of equal length.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "tessera/models/data/token_file.h"
#include "tessera/tensor/tensor.h"

namespace tessera::models::data {

/// Tokens divided into sequences of equal length, with documents packed one after another. Sequence
/// i has tokens [i * length, i * length + length]; its last token is only a target. Tokens left
/// over at the end are not used.
///
/// A data set for nn::data::DataLoader, whose batches are tokens and targets [rows, length]:
///
///     nn::data::DataLoader loader(sequences, {.batch_size = 16, .shuffle = true, .workers = 1});
///     for (auto [tokens, targets] : loader) ...
class PackedSequences {
 public:
  /// Throws InvalidArgument for a length below 1, and DataError for fewer than length + 1 tokens,
  /// with both numbers.
  PackedSequences(std::shared_ptr<const TokenSpan> tokens, std::int64_t length);
  std::int64_t size() const { return count_; }
  std::int64_t length() const { return length_; }
  /// Reads length + 1 tokens.
  void read(std::int64_t index, std::span<std::int64_t> out) const;
  /// The tokens of a sequence and each token's successor, both i64 [length], on the CPU.
  std::pair<Tensor, Tensor> get(std::int64_t index) const;
  /// A hash (XXH64) of all tokens, which it reads.
  std::uint64_t fingerprint() const;

 private:
  std::shared_ptr<const TokenSpan> tokens_;
  std::int64_t length_;
  std::int64_t count_;
};

}  // namespace tessera::models::data
