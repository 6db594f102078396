#include <sentencepiece_trainer.h>
#include <xxhash.h>

#include <mutex>
#include <unordered_map>

#include "tessera/models/data/sentence_piece.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"

namespace tessera::models::data {
namespace {

constexpr const char* kWhere = "train_sentence_piece";
constexpr std::int64_t kFixedPieces = 259;
constexpr std::int64_t kLargestVocabulary = 1'000'000;

void check_options(const SentencePieceTraining& options) {
  TESSERA_CHECK(options.model_type == "bpe" || options.model_type == "unigram", kWhere,
                "the model type is \"{}\"; it must be bpe or unigram", options.model_type);
  TESSERA_CHECK(
      options.vocab_size > kFixedPieces && options.vocab_size <= kLargestVocabulary, kWhere,
      "a vocabulary of {}; {} are taken by the bytes, the space, the end of a text and an "
      "unused piece, and {} is the most",
      options.vocab_size, kFixedPieces, kLargestVocabulary);
  TESSERA_CHECK(options.max_bytes >= 1, kWhere, "max_bytes is {}; it must be at least 1",
                options.max_bytes);
}

// The training lines: all of them, or a random part of about max_bytes.
std::vector<std::string_view> lines_to_read(std::span<const std::string> texts,
                                            const SentencePieceTraining& options) {
  std::vector<std::string_view> lines;
  std::size_t total = 0;
  for (const std::string& text : texts) {
    check_utf8(text, kWhere);
    total += text.size();
    cut_for_sentence_piece(
        text, [&](std::string_view piece) { lines.push_back(piece); }, [](std::string_view) {});
  }
  const double part = static_cast<double>(options.max_bytes) / static_cast<double>(total);
  if (part >= 1) return lines;
  const double limit = part * 0x1p64;
  std::uint64_t position = 0;
  std::erase_if(lines, [&](std::string_view) {
    const std::uint64_t hash = XXH64(&position, sizeof(position), options.seed);
    ++position;
    return static_cast<double>(hash) >= limit;
  });
  return lines;
}

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string_view>& lines) : lines_(lines) { copy(); }
  bool done() const override { return position_ >= lines_.size(); }
  void Next() override {
    ++position_;
    copy();
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void copy() {
    if (!done()) line_ = lines_[position_];
  }

  const std::vector<std::string_view>& lines_;
  std::size_t position_ = 0;
  std::string line_;
};

std::unordered_map<std::string, std::string> settings(const SentencePieceTraining& options) {
  return {
      {"vocab_size", std::to_string(options.vocab_size)},
      {"model_type", options.model_type},
      // No byte of a text may be lost.
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"required_chars", std::string(kSpaceSymbol)},
      // Rare characters are encoded as bytes; indentation gets pieces of its own.
      {"character_coverage", "0.9999"},
      {"allow_whitespace_only_pieces", "true"},
      {"unk_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      // The sums of unigram training depend on the number of threads, so it is constant.
      {"num_threads", "2"},
      {"minloglevel", "3"},
  };
}

// SentencePiece's reason without the source position: "file(line) [condition] reason".
std::string reason_of(const sentencepiece::util::Status& status) {
  const std::string text = status.error_message();
  const std::size_t bracket = text.rfind("] ");
  return bracket == std::string::npos || bracket + 2 >= text.size() ? text
                                                                    : text.substr(bracket + 2);
}

}  // namespace

void train_sentence_piece(std::span<const std::string> texts, const std::string& path,
                          const SentencePieceTraining& options) {
  check_options(options);
  std::vector<std::string_view> lines = lines_to_read(texts, options);
  TESSERA_CHECK_AS(DataError, !lines.empty(), kWhere,
                   "there is no text to learn from; give some, or raise max_bytes from {}",
                   options.max_bytes);
  // Ensures that a space occurs, since a required character must occur. Without it the space, if no
  // text contains one, would be encoded as the bytes of its symbol.
  lines.push_back(" ");
  static std::mutex one_at_a_time;  // the trainer sets its log level for the whole process
  const std::lock_guard lock(one_at_a_time);
  Lines iterator(lines);
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(settings(options), &iterator, &model);
  if (!status.ok())
    throw_error<DataError>(kWhere,
                           "{} lines of text and a {} vocabulary of {} do not go together: {} Give "
                           "more text or another size",
                           lines.size() - 1, options.model_type, options.vocab_size,
                           reason_of(status));
  model += checksum_field(model);
  AtomicFile file(kWhere, path);
  file.write(model.data(), model.size());
  file.commit();
}

}  // namespace tessera::models::data
