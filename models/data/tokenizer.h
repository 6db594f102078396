#pragma once

/// Text to tokens and back. A constructed tokenizer is immutable and thread-safe.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::models::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// "bytes", or the path of the model file.
  virtual const std::string& name() const = 0;
  /// A hash of the data that determines its tokens: equal for equal tokenizers, whatever their
  /// names.
  virtual std::uint64_t fingerprint() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  /// The token between documents. Text is never encoded to it.
  virtual std::int32_t end_of_text() const = 0;
  /// Lines are encoded independently: encode(a + b) is encode(a) followed by encode(b) if a ends in
  /// "\n" and b does not begin with it. Pieces of a text may therefore be encoded in parallel.
  /// Throws DataError for text that is not UTF-8, with the position of the first bad byte.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// decode(encode(text)) is text, and tokens decoded one by one give the same bytes as together.
  /// Tokens from the middle of a character may decode to bytes that are not UTF-8. end_of_text()
  /// decodes to nothing. Throws InvalidArgument for a token outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  /// Bytes of text that each token stands for. Over a document's tokens they add up to its size.
  virtual const std::vector<std::int64_t>& token_bytes() const = 0;
};

/// One token per byte and one for the end of a text: 257.
std::unique_ptr<Tokenizer> byte_tokenizer();

/// Opens a SentencePiece model file that loses no byte of a text: one that train_sentence_piece
/// wrote, or any other with byte fallback, an end-of-sentence piece, and neither normalisation nor
/// an added leading space. For any other file throws DataError naming the file and the missing
/// property.
std::unique_ptr<Tokenizer> sentence_piece_tokenizer(const std::string& path);

/// "bytes", or the path of a SentencePiece model.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name);

struct SentencePieceTraining {
  std::int64_t vocab_size = 4096;       ///< including 259 for bytes, space, end of text, and one
                                        ///< unused
  std::string model_type = "bpe";       ///< bpe | unigram
  std::int64_t max_bytes = 10'000'000;  ///< bytes of text to train on
  std::uint64_t seed = 1;               ///< for the choice of lines, if there is more text
};

/// Trains a tokenizer that loses no byte of a text (including spaces and line ends), and writes it
/// to `path`, complete or not at all. The same texts and options give the same file. Prints
/// nothing. Throws InvalidArgument for an invalid model type, size or number of bytes; DataError
/// for text that is not UTF-8 and, with SentencePiece's reason, if the text does not suit the size;
/// CheckpointError if the file cannot be written.
void train_sentence_piece(std::span<const std::string> texts, const std::string& path,
                          const SentencePieceTraining& options = {});

/// Checks that all tokenizers share, and their fingerprint.

/// Throws DataError with the position of the first byte of `text` that is not UTF-8.
void check_utf8(std::string_view text, std::string_view where);
/// Throws InvalidArgument for a token outside the vocabulary.
void check_token(std::int64_t token, std::int64_t vocab_size, std::string_view where);
/// XXH64 of the data that describes a tokenizer.
std::uint64_t fingerprint_of(std::string_view description);

}  // namespace tessera::models::data
