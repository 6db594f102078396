#pragma once

/// What the use and the training of a SentencePiece tokenizer share. Private to this folder.

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/models/data/text_files.h"
#include "tessera/models/data/utf8.h"

namespace tessera::models::data {

/// How a text is split before SentencePiece sees it, in training and in encoding.
///
/// SentencePiece writes a space as U+2581, reserves zero, tab and U+2585 for itself, and aborts the
/// program for words of 65,536 characters. These characters are therefore never passed to it, and
/// no piece is longer than kLongestPiece. Pieces depend only on their line (text_files.h).
inline constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";  // U+2581
inline constexpr std::size_t kLongestPiece = 4096;                // bytes

/// Size in bytes of the reserved character at the start of `text`; 0 if another character is there.
inline std::size_t reserved_size(std::string_view text) {
  if (text[0] == '\0' || text[0] == '\t') return 1;
  if (text[0] != kSpaceSymbol[0]) return 0;
  return text.starts_with(kSpaceSymbol) || text.starts_with("\xe2\x96\x85") ? 3 : 0;
}

/// Calls `piece(text)` and `reserved(character)` for the parts of a text, front to back.
template <class Piece, class Reserved>
void cut_for_sentence_piece(std::string_view text, const Piece& piece, const Reserved& reserved) {
  std::size_t begin = 0, end_of_line = 0;
  const auto give = [&](std::size_t end) {
    if (end > begin) piece(text.substr(begin, end - begin));
    begin = end;
  };
  for (std::size_t at = 0; at < text.size();) {
    if (at == end_of_line) {
      give(at);
      end_of_line = line_end(text, at);
    }
    if (const std::size_t bytes = reserved_size(text.substr(at)); bytes > 0) {
      give(at);
      reserved(text.substr(at, bytes));
      begin = at += bytes;
    } else {
      if (at - begin >= kLongestPiece) give(character_begin(text, at));
      ++at;
    }
  }
  give(text.size());
}

/// A checksum inside a SentencePiece model file: an extra last field of the protocol buffer, which
/// other readers ignore.

/// The field to append to a serialized model.
std::string checksum_field(std::string_view model);

/// Throws DataError naming `path` if the model ends with such a field whose checksum is wrong. A
/// model without the field passes: another program made it.
void check_checksum_field(std::string_view model, const std::string& path, std::string_view where);

}  // namespace tessera::models::data
