#include "tessera/tests/models/language/sequences.h"

#include <utility>

#include "tessera/models/data/held_tokens.h"

namespace tessera::testing {
namespace {

constexpr std::int32_t kEnd = kTinyVocabulary - 1;

std::int64_t repeats(std::int64_t token) { return 1 + token % 3; }

}  // namespace

LetterTokenizer::LetterTokenizer() {
  for (std::int64_t token = 0; token + 1 < kTinyVocabulary; ++token)
    bytes_.push_back(repeats(token));
  bytes_.push_back(0);
}

std::vector<std::int32_t> LetterTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  for (std::size_t at = 0; at < text.size();) {
    tokens.push_back(text[at] - 'a');
    at += static_cast<std::size_t>(repeats(tokens.back()));
  }
  return tokens;
}

std::string LetterTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token != end_of_text()) {
      text.append(static_cast<std::size_t>(repeats(token)), static_cast<char>('a' + token));
    }
  }
  return text;
}

std::shared_ptr<const models::data::TokenSpan> letter_stream(std::int64_t count,
                                                             std::uint32_t seed) {
  std::vector<std::int32_t> tokens;
  std::uint32_t state = seed;
  std::int32_t token = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    const auto choice = static_cast<std::int32_t>(state >> 24);
    token = choice < 13 ? kEnd : (3 * token + choice % 2) % kEnd;
    tokens.push_back(token);
  }
  return models::data::hold_tokens({std::move(tokens)}, kTinyVocabulary);
}

}  // namespace tessera::testing
