#pragma once

/// Checks that all tokenizers share, and their fingerprint.

#include <cstdint>
#include <string_view>

namespace tessera::models::data {

/// Throws DataError with the position of the first byte of `text` that is not UTF-8.
void check_utf8(std::string_view text, std::string_view where);
/// Throws InvalidArgument for a token outside the vocabulary.
void check_token(std::int64_t token, std::int64_t vocab_size, std::string_view where);
/// XXH64 of the data that describes a tokenizer.
std::uint64_t fingerprint_of(std::string_view description);

}  // namespace tessera::models::data
