#include "tessera/models/runs/text_data.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tessera/models/data/packed_sequences.h"
#include "tessera/models/data/text_files.h"
#include "tessera/tensor/check.h"

namespace tessera::models::runs {
namespace {

using namespace data;

// Two spans in one.
class JoinedSpan final : public TokenSpan {
 public:
  JoinedSpan(std::shared_ptr<const TokenSpan> first, std::shared_ptr<const TokenSpan> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  std::int64_t size() const override { return first_->size() + second_->size(); }
  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    const std::int64_t left = std::max<std::int64_t>(0, first_->size() - begin);
    const std::size_t of_first = std::min(out.size(), static_cast<std::size_t>(left));
    if (of_first > 0) first_->read(begin, out.first(of_first));
    if (of_first < out.size())
      second_->read(begin + static_cast<std::int64_t>(of_first) - first_->size(),
                    out.subspan(of_first));
  }

 private:
  std::shared_ptr<const TokenSpan> first_, second_;
};

// Bytes of text per token of a sequence that are enough for a validation sequence with any
// tokenizer.
constexpr std::int64_t kPlenty = 2000;

// Every rank reads the text, more than once. Sources that can be read only once, such as a pipe, or
// that have no end are errors.
void check_kind(const std::string& data) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(data, ignored).type();
  const bool is_file = kind == std::filesystem::file_type::regular ||
                       kind == std::filesystem::file_type::directory ||
                       kind == std::filesystem::file_type::not_found;
  if (!is_file)
    throw_error<DataError>("data", "{} is neither a regular file nor a folder; copy it to a file",
                           data);
}

// Throws if a part is shorter than one sequence.
void check_length(const TokenizedText& text, std::int64_t length) {
  PackedSequences(text.train, length);
  PackedSequences(text.validation, length);
}

}  // namespace

std::string tokenizer_for(const std::string& data, const std::string& asked) {
  check_kind(data);
  if (!asked.empty()) return asked;
  return is_token_file(data) ? tokenizer_of_token_file(data) : "bytes";
}

TextData load_text(const std::string& data, const std::string& tokenizer) {
  TextData loaded{.tokenizer = open_tokenizer(tokenizer_for(data, tokenizer)), .text = {}};
  loaded.text = is_token_file(data) ? open_token_file(data, loaded.tokenizer.get())
                                    : tokenize(read_documents(data), *loaded.tokenizer);
  return loaded;
}

std::string check_text(const std::string& data, const std::string& tokenizer, std::int64_t length) {
  const auto opened = open_tokenizer(tokenizer_for(data, tokenizer));
  if (is_token_file(data)) {
    check_length(open_token_file(data, opened.get()), length);
    return {};
  }
  const std::vector<Document> documents = read_documents(data);
  std::int64_t bytes = 0;
  for (const Document& document : documents)
    bytes += static_cast<std::int64_t>(document.text.size());
  if (bytes < kPlenty * length) check_length(tokenize(documents, *opened), length);
  return is_default_corpus(data) ? default_corpus_version(documents).note : std::string();
}

std::shared_ptr<const TokenSpan> whole_text(const TokenizedText& text) {
  return std::make_shared<JoinedSpan>(text.train, text.validation);
}

}  // namespace tessera::models::runs
