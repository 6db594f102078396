#pragma once

/// The text of a run, tokenized: of a file, a folder, the default corpus or a token file.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "tessera/models/data/token_file.h"
#include "tessera/models/data/tokenizer.h"

namespace tessera::tools {

struct TextData {
  std::unique_ptr<models::data::Tokenizer> tokenizer;
  models::data::TokenizedText text;

  std::int64_t tokens() const { return text.train->size() + text.validation->size(); }
  std::int64_t bytes() const { return text.train_bytes + text.validation_bytes; }
  std::int64_t documents() const { return text.train_documents + text.validation_documents; }
};

/// The tokenizer's name for `data`: the one that is asked for; else of a token file the one that
/// made it; else "bytes".
std::string tokenizer_for(const std::string& data, const std::string& asked);

/// Throws DataError as the functions of models/data.
TextData load_text(const std::string& data, const std::string& tokenizer);

/// Throws what training in sequences of `length` would for text that cannot be read or is too
/// short, in less time where there is much of it. Answers what the user should know of it: a
/// default corpus of a version that is not known; else nothing.
std::string check_text(const std::string& data, const std::string& tokenizer, std::int64_t length);

/// The text of a process, loaded by the first rank that asks: ranks that are threads share it.
class SharedText {
 public:
  SharedText(std::string data, std::string tokenizer)
      : data_(std::move(data)), tokenizer_(std::move(tokenizer)) {}
  const TextData& get() {
    std::call_once(loaded_, [this] { text_ = load_text(data_, tokenizer_); });
    return text_;
  }

 private:
  std::string data_;
  std::string tokenizer_;
  std::once_flag loaded_;
  TextData text_;
};

/// All of a text, the part for validation behind the part for training.
std::shared_ptr<const models::data::TokenSpan> whole_text(const models::data::TokenizedText& text);

}  // namespace tessera::tools
