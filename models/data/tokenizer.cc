#include "tessera/models/data/tokenizer.h"

#include <xxhash.h>

#include "tessera/models/data/tokenizer_checks.h"
#include "tessera/models/data/utf8.h"
#include "tessera/tensor/check.h"

namespace tessera::models::data {

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name) {
  return name == "bytes" ? byte_tokenizer() : sentence_piece_tokenizer(name);
}

void check_utf8(std::string_view text, std::string_view where) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return;
  throw_error<DataError>(where,
                         "the text is not UTF-8: byte {:#04x} at position {} of {}; convert it "
                         "to UTF-8",
                         static_cast<std::uint8_t>(text[bad]), bad, text.size());
}

void check_token(std::int64_t token, std::int64_t vocab_size, std::string_view where) {
  TESSERA_CHECK(token >= 0 && token < vocab_size, where,
                "token {} is outside the vocabulary of {}; the tokens are another tokenizer's",
                token, vocab_size);
}

std::uint64_t fingerprint_of(std::string_view description) {
  return XXH64(description.data(), description.size(), 0);
}

}  // namespace tessera::models::data
