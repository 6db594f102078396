#pragma once

/// A text's tokens as samples of equal length.

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/models/data/token_file.h"

namespace tessera::models::data {

/// Tokens cut into sequences of equal length, documents packed one behind the other. Sequence i has
/// tokens [i * length, i * length + length], the last of which is only a target; what is left over
/// at the end is not used.
class PackedSequences {
 public:
  /// Throws InvalidArgument for a length below 1, DataError for fewer than length + 1 tokens, with
  /// both numbers.
  PackedSequences(std::shared_ptr<const TokenSpan> tokens, std::int64_t length);
  std::int64_t count() const { return count_; }
  std::int64_t length() const { return length_; }
  /// length + 1 tokens.
  void read(std::int64_t index, std::span<std::int64_t> out) const;

 private:
  std::shared_ptr<const TokenSpan> tokens_;
  std::int64_t length_;
  std::int64_t count_;
};

}  // namespace tessera::models::data
