#pragma once

/// The header of a token file; models/data/README.md has the table of its fields.

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::models::data {

inline constexpr std::string_view kTokenFileMagic = "\x89TOKENS\n";
inline constexpr std::int64_t kTokenFileFixedBytes = 96;  ///< bytes before the tokenizer's name
inline constexpr std::int64_t kTokenFileLongestName = 4096;
inline constexpr std::int64_t kTokenFileLongestHeader = 4224;
inline constexpr std::int64_t kTokenFileTrailer = 8;  ///< bytes after the tokens: their checksum

struct TokenFileHeader {
  struct Part {
    std::int64_t tokens = 0;
    std::int64_t documents = 0;
    std::int64_t bytes = 0;  ///< bytes of text
  };
  std::int64_t token_bytes = 2;
  std::int64_t vocab_size = 0;
  std::uint64_t fingerprint = 0;  ///< of the tokenizer
  Part train;
  Part validation;
  std::string tokenizer;  ///< name of the tokenizer

  /// The position of the first token: a multiple of 64.
  std::int64_t header_bytes() const;
  std::int64_t file_bytes() const;
};

/// Returns header_bytes() bytes, with the checksum.
std::string encode_token_file_header(const TokenFileHeader& header);
/// Parses the header of a file of `file_bytes` bytes that begins with `front`: its first
/// kTokenFileLongestHeader bytes, or all of it. Throws DataError naming `path` and the invalid
/// field. If it returns, the file's size matches the header.
TokenFileHeader decode_token_file_header(std::string_view front, std::int64_t file_bytes,
                                         const std::string& path);

}  // namespace tessera::models::data
