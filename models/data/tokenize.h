#pragma once

/// The steps of tokenize() (token_file.h): choosing the part of a text that is kept for validation,
/// and holding tokens in memory, stored as narrowly as the vocabulary allows.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/models/data/text_files.h"
#include "tessera/models/data/token_file.h"

namespace tessera::models::data {

/// The part of a text that is kept for validation.

/// Documents, or parts of one. They are views into the documents that were split.
struct TextPart {
  std::vector<std::string_view> texts;
  std::int64_t bytes = 0;
};

struct ValidationSplit {
  TextPart train;
  TextPart validation;
};

/// The rule of TokenizeOptions::validation. Throws InvalidArgument for a fraction outside [0, 1),
/// and DataError if one of the two parts would be empty.
ValidationSplit split_for_validation(std::span<const Document> documents, double validation);

/// Tokens in memory, stored as narrowly as the vocabulary allows.

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
