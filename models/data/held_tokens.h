#pragma once

/// Tokens in memory, stored as narrowly as the vocabulary allows.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/models/data/token_file.h"

namespace tessera::models::data {

/// Bytes per token, in memory and in a file.
constexpr std::int64_t token_bytes_for(std::int64_t vocab_size) {
  return vocab_size <= 65'536 ? 2 : 4;
}

/// The concatenated tokens of all pieces. Each piece is freed as soon as it is copied. Every token
/// must be in the vocabulary.
std::shared_ptr<const TokenSpan> hold_tokens(std::vector<std::vector<std::int32_t>>&& pieces,
                                             std::int64_t vocab_size);

/// Throws InvalidArgument unless [begin, begin + count) is inside `size` tokens.
void check_token_range(std::int64_t begin, std::size_t count, std::int64_t size);

}  // namespace tessera::models::data
