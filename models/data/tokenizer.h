#pragma once

/// Text to tokens and back. A tokenizer is constant after it was made: any thread may use it.

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
  /// "bytes", or the path of the file that it was read from.
  virtual const std::string& name() const = 0;
  /// A hash of what decides over its tokens: equal for equal tokenizers, whatever their names.
  virtual std::uint64_t fingerprint() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  /// The token that stands between documents. Never made of text.
  virtual std::int32_t end_of_text() const = 0;
  /// Lines are encoded on their own: encode(a + b) is encode(a), then encode(b), where a ends in
  /// "\n" and b does not begin with it. So pieces of a text may be encoded at the same time. Throws
  /// DataError for text that is not UTF-8, with the position of the first bad byte.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// decode(encode(text)) is text, and tokens decoded one by one give the same bytes as together.
  /// What tokens cut out of the middle of a character give is not always UTF-8. end_of_text() gives
  /// nothing. Throws InvalidArgument for a token outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  /// Bytes of text that each token stands for: of all tokens of a document they add up to its size.
  virtual const std::vector<std::int64_t>& token_bytes() const = 0;
};

/// A token for each byte and one for the end of a text: 257.
std::unique_ptr<Tokenizer> byte_tokenizer();

/// A model file of SentencePiece that gives back every byte of a text: one that
/// train_sentence_piece wrote, or any other with byte fallback, an end-of-sentence piece, and
/// neither normalisation nor a space put in front. Throws DataError naming the file, and what it
/// lacks, for any other file.
std::unique_ptr<Tokenizer> sentence_piece_tokenizer(const std::string& path);

/// "bytes", or the path of a SentencePiece model.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name);

struct SentencePieceTraining {
  std::int64_t vocab_size = 4096;       ///< 259 of them: bytes, space, end of text, one unused
  std::string model_type = "bpe";       ///< bpe | unigram
  std::int64_t max_bytes = 10'000'000;  ///< of text that is read to learn from
  std::uint64_t seed = 1;               ///< of which lines are read, where there are more
};

/// Learns a tokenizer that gives back every byte of a text (spaces and lines too), and writes it to
/// `path`, whole or not at all. The same texts and options give the same file. Prints nothing.
/// Throws InvalidArgument for a model type, size or number of bytes that cannot be, DataError for
/// text that is not UTF-8 and, with SentencePiece's reason, where the text and the size do not go
/// together; CheckpointError where the file cannot be written.
void train_sentence_piece(std::span<const std::string> texts, const std::string& path,
                          const SentencePieceTraining& options = {});

}  // namespace tessera::models::data
