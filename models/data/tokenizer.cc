#include "tessera/models/data/tokenizer.h"

#include <xxhash.h>

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

namespace {

constexpr std::int32_t kBytes = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  std::uint64_t fingerprint() const override { return fingerprint_of(name_); }
  std::int64_t vocab_size() const override { return kBytes + 1; }
  std::int32_t end_of_text() const override { return kBytes; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    check_utf8(text, "byte_tokenizer");
    std::vector<std::int32_t> tokens(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) tokens[i] = static_cast<std::uint8_t>(text[i]);
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const std::int32_t token : tokens) {
      check_token(token, vocab_size(), "byte_tokenizer");
      if (token < kBytes) text.push_back(static_cast<char>(token));
    }
    return text;
  }

  const std::vector<std::int64_t>& token_bytes() const override { return token_bytes_; }

 private:
  std::string name_ = "bytes";
  std::vector<std::int64_t> token_bytes_ = [] {
    std::vector<std::int64_t> bytes(kBytes + 1, 1);
    bytes[kBytes] = 0;
    return bytes;
  }();
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace tessera::models::data
