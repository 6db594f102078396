#pragma once

/// Tokens in a file, read during training, of any size.
///
/// The format is described in models/data/README.md. One file holds a training part and a
/// validation part, the number of text bytes of each, and the name, size and fingerprint of the
/// tokenizer that made it. Little-endian; 2 bytes per token for a vocabulary of up to 65,536, else
/// 4.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/models/data/text_files.h"
#include "tessera/models/data/tokenizer.h"

namespace tessera::models::data {

/// A sequence of tokens whose memory or file is owned elsewhere. Copies are cheap.
class TokenSpan {
 public:
  virtual ~TokenSpan() = default;
  virtual std::int64_t size() const = 0;
  /// Reads tokens [begin, begin + out.size()). Thread-safe. Throws InvalidArgument if out of range.
  virtual void read(std::int64_t begin, std::span<std::int64_t> out) const = 0;
};

struct TokenizedText {
  std::shared_ptr<const TokenSpan> train;
  std::shared_ptr<const TokenSpan> validation;
  std::string tokenizer;  ///< name of the tokenizer
  std::uint64_t tokenizer_fingerprint = 0;
  std::int64_t vocab_size = 0;
  std::int64_t train_documents = 0;
  std::int64_t validation_documents = 0;
  std::int64_t train_bytes = 0;  ///< bytes of text
  std::int64_t validation_bytes = 0;
};

struct TokenizeOptions {
  /// The fraction of the bytes that is kept for validation, in [0, 1). Whole documents are chosen
  /// by a hash of their text, so adding one document moves no other. If the chosen documents hold
  /// less than half or more than twice the fraction, as is possible with few documents, the end of
  /// the text is used instead.
  double validation = 0.05;
  int threads = 0;  ///< threads that encode; 0: as many as this rank may use
};

/// Encodes documents in memory, each followed by end_of_text(). The tokens do not depend on the
/// number of threads. Throws InvalidArgument for an invalid fraction or number of threads;
/// DataError for text that is too short to be split, or is not UTF-8.
TokenizedText tokenize(std::span<const Document> documents, const Tokenizer& tokenizer,
                       const TokenizeOptions& options = {});

/// Writes the result of tokenize(). The file appears complete or not at all. Throws InvalidArgument
/// if `tokenizer` did not make the text, CheckpointError if writing fails.
void write_token_file(const std::string& path, const TokenizedText& text,
                      const Tokenizer& tokenizer);
/// Opens a file and reads all of it once. It checks every header field, also against the file's
/// size, every token against the vocabulary, and the checksums of header and tokens. Throws
/// DataError naming the file and the field or the token's position, also if another tokenizer made
/// the file, by its fingerprint (null: not checked). The file must not change while it is in use:
/// read() throws DataError for tokens outside the vocabulary and for a file that became shorter.
/// Replacing it with write_token_file is safe.
TokenizedText open_token_file(const std::string& path, const Tokenizer* tokenizer);
/// Reads only the header, and returns the name of the tokenizer that made the file. Throws as
/// open_token_file.
std::string tokenizer_of_token_file(const std::string& path);
/// Inspects the file's first bytes. False if it cannot be read or is not a regular file.
bool is_token_file(const std::string& path);

}  // namespace tessera::models::data
