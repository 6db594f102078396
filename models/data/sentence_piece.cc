#include "tessera/models/data/sentence_piece.h"

#include <array>
#include <charconv>
#include <utility>

#include <sentencepiece_processor.h>
#include <xxhash.h>

#include "tessera/models/data/text_files.h"
#include "tessera/models/data/tokenizer.h"
#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

// Field 20001, in the extension range of SentencePiece, followed by 30 bytes of text.
constexpr std::string_view kFront = "\x8a\xe2\x09\x1etessera-xxh64:";
constexpr std::size_t kDigits = 16;

std::string digits_of(std::string_view model) {
  return fmt::format("{:016x}", XXH64(model.data(), model.size(), 0));
}

}  // namespace

std::string checksum_field(std::string_view model) {
  return std::string(kFront) + digits_of(model);
}

void check_checksum_field(std::string_view model, const std::string& path, std::string_view where) {
  const std::size_t field = kFront.size() + kDigits;
  if (model.size() < field || !model.substr(model.size() - field).starts_with(kFront)) return;
  const std::string_view stored = model.substr(model.size() - kDigits);
  const std::string found = digits_of(model.substr(0, model.size() - field));
  TESSERA_CHECK_AS(DataError, stored == found, where,
                   "{} has the checksum {} at its end, its own is {}; it is damaged, take a copy "
                   "of it or learn it again",
                   path, stored, found);
}

namespace {

constexpr const char* kWhere = "sentence_piece_tokenizer";
// For a user at a shell, and for a program.
constexpr const char* kMakeOne =
    "make one with tessera tokenize --train-tokenizer (train_sentence_piece in C++)";
constexpr std::int64_t kLargestModel = std::int64_t{1} << 28;  // bytes
constexpr std::int32_t kNoToken = -1;

// Texts that normalisation, trimming or an added leading space would change.
constexpr std::array<std::string_view, 5> kProbes = {
    "a", " a  b ", "   ", "line\n\n  \n",
    "\xef\xac\x81 \xe2\x91\xa0 e\xcc\x81 \xe3\x80\x80 \xf0\x9f\x98\x80"};

// "<0x41>" is the byte 0x41.
std::uint8_t byte_of(const std::string& piece) {
  std::uint8_t value = 0;
  if (piece.size() == 6) std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  return value;
}

// The text of a piece; the space symbol is a space.
std::string text_of(const std::string& piece) {
  std::string text;
  for (std::size_t at = 0; at < piece.size();) {
    const bool space = std::string_view(piece).substr(at).starts_with(kSpaceSymbol);
    text.push_back(space ? ' ' : piece[at]);
    at += space ? kSpaceSymbol.size() : 1;
  }
  return text;
}

// Decodes with its own table, because SentencePiece's decoder drops leading spaces and replaces
// bytes that form no character.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path);

  const std::string& name() const override { return name_; }
  std::uint64_t fingerprint() const override { return fingerprint_; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(texts_.size()); }
  std::int32_t end_of_text() const override { return processor_.eos_id(); }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  const std::vector<std::int64_t>& token_bytes() const override { return token_bytes_; }

 private:
  void read_pieces();
  void check_lossless() const;
  void encode_piece(std::string_view piece, std::vector<int>& scratch,
                    std::vector<std::int32_t>& out) const;

  std::string name_;
  std::uint64_t fingerprint_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> texts_;  // text of each token
  std::vector<std::int64_t> token_bytes_;
  std::array<std::int32_t, 256> byte_tokens_;
};

SentencePieceTokenizer::SentencePieceTokenizer(const std::string& path) : name_(path) {
  const std::string model = read_whole_file(
      path, {.where = kWhere,
             .most = kLargestModel,
             .if_missing = "name the model's place; where a token file names this one and it was "
                           "moved, name the new place: it is known by its content, not its path"});
  check_checksum_field(model, path, kWhere);
  fingerprint_ = fingerprint_of(model);
  const auto status = processor_.LoadFromSerializedProto(model);
  if (!status.ok())
    throw_error<DataError>(
        kWhere,
        "{} ({} bytes) is no model of SentencePiece, or damaged; {}, or name another "
        "file",
        path, model.size(), kMakeOne);
  read_pieces();
  check_lossless();
}

void SentencePieceTokenizer::read_pieces() {
  byte_tokens_.fill(kNoToken);
  for (int id = 0; id < processor_.GetPieceSize(); ++id) {
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) {
      const std::uint8_t byte = byte_of(piece);
      byte_tokens_[byte] = id;
      texts_.emplace_back(1, static_cast<char>(byte));
    } else {
      const bool silent =
          processor_.IsControl(id) || processor_.IsUnknown(id) || processor_.IsUnused(id);
      texts_.push_back(silent ? "" : text_of(piece));
    }
    token_bytes_.push_back(static_cast<std::int64_t>(texts_.back().size()));
  }
}

void SentencePieceTokenizer::check_lossless() const {
  const int end = processor_.eos_id();
  TESSERA_CHECK_AS(DataError, end >= 0 && end < vocab_size() && processor_.IsControl(end), kWhere,
                   "{} has no end-of-sentence piece to stand between documents; {}", name_,
                   kMakeOne);
  for (std::size_t byte = 0; byte < byte_tokens_.size(); ++byte)
    TESSERA_CHECK_AS(DataError, byte_tokens_[byte] != kNoToken, kWhere,
                     "{} has no piece for the byte {:#04x}: it was trained without byte fallback "
                     "and cannot keep every text; {}",
                     name_, byte, kMakeOne);
  for (const std::string_view probe : kProbes) encode(probe);
}

std::vector<std::int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  check_utf8(text, kWhere);
  std::vector<std::int32_t> tokens;
  std::vector<int> scratch;
  cut_for_sentence_piece(
      text, [&](std::string_view piece) { encode_piece(piece, scratch, tokens); },
      [&](std::string_view character) {
        for (const char byte : character)
          tokens.push_back(byte_tokens_[static_cast<std::uint8_t>(byte)]);
      });
  return tokens;
}

// Compares the tokens with the text, so that a model that changes texts is always detected.
void SentencePieceTokenizer::encode_piece(std::string_view piece, std::vector<int>& scratch,
                                          std::vector<std::int32_t>& out) const {
  const auto status = processor_.Encode(piece, &scratch);
  bool same = status.ok();
  std::size_t at = 0;
  for (const int token : scratch) {
    if (!same) break;
    const std::string& text = texts_[static_cast<std::size_t>(token)];
    same = !text.empty() && piece.substr(at).starts_with(text);
    at += text.size();
    out.push_back(token);
  }
  TESSERA_CHECK_AS(DataError, same && at == piece.size(), kWhere,
                   "{} does not give back \"{}\" as it was: it normalises text, trims spaces or "
                   "puts one in front; {}",
                   name_, piece.substr(0, character_begin(piece, 40)), kMakeOne);
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    check_token(token, vocab_size(), kWhere);
    text += texts_[static_cast<std::size_t>(token)];
  }
  return text;
}

}  // namespace

std::unique_ptr<Tokenizer> sentence_piece_tokenizer(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

}  // namespace tessera::models::data
