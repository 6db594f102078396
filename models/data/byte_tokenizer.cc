#include "tessera/models/data/tokenizer.h"
#include "tessera/models/data/tokenizer_checks.h"

namespace tessera::models::data {
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
