#pragma once

/// Tokens in a file: what a run reads while it trains, however large.
///
/// The format is described in models/data/README.md. One file holds a training part and a
/// validation part, the bytes of text that each stands for, and the name, size and fingerprint of
/// the tokenizer that made it. Little-endian, 2 bytes a token up to a vocabulary of 65,536, else 4.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/models/data/text_files.h"
#include "tessera/models/data/tokenizer.h"

namespace tessera::models::data {

/// A run of tokens that somebody else keeps alive. Copies are cheap.
class TokenSpan {
 public:
  virtual ~TokenSpan() = default;
  virtual std::int64_t size() const = 0;
  /// Tokens [begin, begin + out.size()). Any thread. Throws InvalidArgument outside.
  virtual void read(std::int64_t begin, std::span<std::int64_t> out) const = 0;
};

struct TokenizedText {
  std::shared_ptr<const TokenSpan> train;
  std::shared_ptr<const TokenSpan> validation;
  std::string tokenizer;  ///< its name
  std::uint64_t tokenizer_fingerprint = 0;
  std::int64_t vocab_size = 0;
  std::int64_t train_documents = 0;
  std::int64_t validation_documents = 0;
  std::int64_t train_bytes = 0;  ///< of text
  std::int64_t validation_bytes = 0;
};

struct TokenizeOptions {
  /// Part of the bytes that is kept for validation, from 0 to below 1. Whole documents are chosen
  /// by a hash of their text, so that adding one moves no other; where these hold less than half or
  /// more than twice the part, as can be with few documents, it is the end of the text instead.
  double validation = 0.05;
  int threads = 0;  ///< that encode; 0: as many as this rank may use
};

/// Encodes documents, each followed by end_of_text(), in memory. Any number of threads gives the
/// same tokens. Throws InvalidArgument for a part or number of threads that cannot be, DataError
/// for text that is too short to be split, or is not UTF-8.
TokenizedText tokenize(std::span<const Document> documents, const Tokenizer& tokenizer,
                       const TokenizeOptions& options = {});

/// Writes what tokenize() gives; the file appears whole or not at all. Throws InvalidArgument for
/// another tokenizer than the one that made the text, CheckpointError where the disk refuses.
void write_token_file(const std::string& path, const TokenizedText& text,
                      const Tokenizer& tokenizer);
/// Opens a file, and reads all of it once: every field of its header is checked, against the file's
/// size too, every token against the vocabulary, and checksums of the header and of the tokens.
/// Throws DataError naming file and field, or the token's position, also for a tokenizer other than
/// the one that made the file, by its fingerprint (null: not checked). The file must keep its bytes
/// while it is used: tokens outside the vocabulary and a file that became shorter are a DataError
/// of read(). write_token_file puts a new one in its place, which is safe.
TokenizedText open_token_file(const std::string& path, const Tokenizer* tokenizer);
/// The name of the tokenizer that made the file; only its header is read. Throws as
/// open_token_file.
std::string tokenizer_of_token_file(const std::string& path);
/// By the file's first bytes; false where it cannot be read, and for what is no regular file.
bool is_token_file(const std::string& path);

}  // namespace tessera::models::data
