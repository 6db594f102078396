#pragma once

/// The tokenized text of a run, from a file, a folder, the default corpus or a token file.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "tessera/models/data/token_file.h"
#include "tessera/models/data/tokenizer.h"

namespace tessera::models::runs {

struct TextData {
  std::unique_ptr<data::Tokenizer> tokenizer;
  data::TokenizedText text;

  std::int64_t tokens() const { return text.train->size() + text.validation->size(); }
  std::int64_t bytes() const { return text.train_bytes + text.validation_bytes; }
  std::int64_t documents() const { return text.train_documents + text.validation_documents; }
};

/// The tokenizer's name for `data`: `asked` if it is not empty; else the tokenizer of a token file;
/// else "bytes".
std::string tokenizer_for(const std::string& data, const std::string& asked);

/// Throws DataError as the functions of models/data.
TextData load_text(const std::string& data, const std::string& tokenizer);

/// Throws the errors that training with sequences of `length` would throw for unreadable or too
/// short text, but is faster for large text. Returns a note for the user if the default corpus is
/// of an unknown version, else an empty text.
std::string check_text(const std::string& data, const std::string& tokenizer, std::int64_t length);

/// The text of a process. The first rank that asks loads it; rank threads share it.
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

/// The whole text: the training part followed by the validation part.
std::shared_ptr<const data::TokenSpan> whole_text(const data::TokenizedText& text);

}  // namespace tessera::models::runs
