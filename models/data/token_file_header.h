#pragma once

/// The front of a token file; the table of its fields is in README.md.

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::models::data {

inline constexpr std::string_view kTokenFileMagic = "\x89TOKENS\n";
inline constexpr std::int64_t kTokenFileFixedBytes = 96;  ///< before the tokenizer's name
inline constexpr std::int64_t kTokenFileLongestName = 4096;
inline constexpr std::int64_t kTokenFileLongestHeader = 4224;
inline constexpr std::int64_t kTokenFileTrailer = 8;  ///< behind the tokens: their checksum

struct TokenFileHeader {
  struct Part {
    std::int64_t tokens = 0;
    std::int64_t documents = 0;
    std::int64_t bytes = 0;  ///< of text
  };
  std::int64_t token_bytes = 2;
  std::int64_t vocab_size = 0;
  std::uint64_t fingerprint = 0;  ///< of the tokenizer
  Part train;
  Part validation;
  std::string tokenizer;  ///< its name

  /// Where the tokens begin: a multiple of 64.
  std::int64_t header_bytes() const;
  std::int64_t file_bytes() const;
};

/// header_bytes() of them, with the checksum.
std::string encode_token_file_header(const TokenFileHeader& header);
/// The header of a file of `file_bytes` that begins with `front`: kTokenFileLongestHeader of them,
/// or all. Throws DataError naming `path` and the field that cannot be; afterwards the file is as
/// long as the header says.
TokenFileHeader decode_token_file_header(std::string_view front, std::int64_t file_bytes,
                                         const std::string& path);

}  // namespace tessera::models::data
