#include "tessera/distributed/trace/json_text.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

namespace tessera::distributed {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes at the start of a text: one character, or the longest part of one that stands there.
struct Piece {
  std::size_t bytes = 1;
  bool whole = false;
};

// Well-formed UTF-8: Unicode, table 3-7.
Piece first_piece(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {.bytes = 1, .whole = true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // No character is longer than it must be, a surrogate, or above U+10FFFF: after some leads the
  // second byte has a smaller range.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) return {.bytes = i};
    low = 0x80;
    high = 0xBF;
  }
  return {.bytes = length, .whole = true};
}

void append_ascii(std::string& out, char character) {
  switch (character) {
    case '"':
    case '\\':
      out += '\\';
      out += character;
      break;
    case '\b':
      out += "\\b";
      break;
    case '\f':
      out += "\\f";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      if (character < ' ')
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(character));
      else
        out += character;
  }
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  while (!text.empty()) {
    const Piece piece = first_piece(text);
    if (!piece.whole)
      out += kReplacement;
    else if (piece.bytes == 1)
      append_ascii(out, text[0]);
    else
      out += text.substr(0, piece.bytes);
    text.remove_prefix(piece.bytes);
  }
  return out + '"';
}

}  // namespace tessera::distributed
