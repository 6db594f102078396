#pragma once

/// The language models in sizes that train in milliseconds, with dropout, behind one interface: for
/// tests that apply to all of them. And tokens for them without files: a stream in memory, and a
/// tokenizer whose tokens stand for texts of different sizes.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/models/data/token_file.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/models/nets/language_model.h"
#include "tessera/models/parallelize/parallelize.h"

namespace tessera::testing {

// The language models in sizes that train in milliseconds, with dropout, behind one interface: for
// tests that apply to all of them.
constexpr std::int64_t kTinyLength = 7;  // positions

class TinyModel {
 public:
  virtual ~TinyModel() = default;
  virtual nn::Module& module() = 0;
  virtual models::LanguageModel language_model() = 0;
  virtual void parallelize(const models::ParallelizeOptions& options) = 0;
};

struct TinyModelOptions {
  DType dtype = DType::kF32;
  double dropout = 0.1;
};

// "transformer", "gpt", "llama", "moe": the last with a capacity that drops no token.
const std::vector<std::string>& tiny_model_names();
// Not initialised. Throws std::invalid_argument for an unknown name.
std::unique_ptr<TinyModel> tiny_model(const std::string& name, const TinyModelOptions& options);

// Training tokens without files: a stream in memory, and a tokenizer whose tokens stand for texts
// of different sizes.
constexpr std::int64_t kTinyVocabulary = 19;  // 18 letters and the end of a text

// Token i stands for the letter 'a' + i, 1 + i % 3 times; the last token stands for no text.
class LetterTokenizer final : public models::data::Tokenizer {
 public:
  LetterTokenizer();
  const std::string& name() const override { return name_; }
  std::uint64_t fingerprint() const override { return 1; }
  std::int64_t vocab_size() const override { return kTinyVocabulary; }
  std::int32_t end_of_text() const override { return kTinyVocabulary - 1; }
  // Encodes only texts that decode() returns.
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  const std::vector<std::int64_t>& token_bytes() const override { return bytes_; }

 private:
  std::string name_ = "letters";
  std::vector<std::int64_t> bytes_;
};

// `count` tokens, most of which follow from the token before, with documents of about 20 tokens.
std::shared_ptr<const models::data::TokenSpan> letter_stream(std::int64_t count,
                                                             std::uint32_t seed);

}  // namespace tessera::testing
