#include "tessera/models/watch/markup.h"

#include <array>
#include <cstdint>

namespace tessera::models::watch {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";     // U+2026

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// One character at the start of `text`: how many bytes are its own, and whether they are valid.
struct Character {
  std::size_t bytes = 1;
  bool valid = false;
};

// Char of XML 1.0, without the surrogates that UTF-8 may not encode.
bool is_xml_character(std::uint32_t code) {
  if (code < 0x20) return code == '\t' || code == '\n' || code == '\r';
  return code <= 0xD7FF || (code >= 0xE000 && code <= 0xFFFD) ||
         (code >= 0x10000 && code <= 0x10FFFF);
}

Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {.bytes = 1, .valid = is_xml_character(lead)};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return {};
  std::uint32_t code = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    // The bytes so far are one invalid character; this byte begins another.
    if (i == text.size() || !continues(text[i])) return {.bytes = i};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  return {.bytes = length, .valid = code >= kSmallest[length] && is_xml_character(code)};
}

// The entity of a character with a special meaning in XML; empty for others.
std::string_view entity_of(char character) {
  switch (character) {
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '&':
      return "&amp;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

}  // namespace

std::string readable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    out += character.valid ? text.substr(0, character.bytes) : kReplacement;
    text.remove_prefix(character.bytes);
  }
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char byte : readable(text)) {
    const std::string_view entity = entity_of(byte);
    if (entity.empty())
      out += byte;
    else
      out += entity;
  }
  return out;
}

std::size_t character_count(std::string_view text) {
  std::size_t count = 0;
  for (const char byte : text) count += !continues(byte);
  return count;
}

std::string shortened(std::string_view text, std::size_t characters) {
  if (character_count(text) <= characters) return std::string(text);
  std::size_t end = 0;
  for (std::size_t kept = 0; end < text.size(); ++end)
    if (!continues(text[end]) && ++kept == characters) break;
  return std::string(text.substr(0, end)) + std::string(kEllipsis);
}

}  // namespace tessera::models::watch
