#include "tessera/models/data/utf8.h"

#include <algorithm>
#include <cstring>

namespace tessera::models::data {
namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080;

bool is_continuation(char byte) { return (static_cast<std::uint8_t>(byte) & 0xc0) == 0x80; }

// The size in bytes of a character that begins with `lead`, and the bounds of its second byte; size
// 0 if no character begins so. The bounds exclude overlong forms (E0, F0), surrogates (ED) and code
// points above U+10FFFF (F4).
struct Form {
  std::size_t bytes;
  std::uint8_t second_low = 0x80;
  std::uint8_t second_high = 0xbf;
};
Form form_of(std::uint8_t lead) {
  if (lead < 0x80) return {.bytes = 1};
  if (lead < 0xc2) return {.bytes = 0};
  if (lead < 0xe0) return {.bytes = 2};
  if (lead == 0xe0) return {.bytes = 3, .second_low = 0xa0};
  if (lead == 0xed) return {.bytes = 3, .second_high = 0x9f};
  if (lead < 0xf0) return {.bytes = 3};
  if (lead == 0xf0) return {.bytes = 4, .second_low = 0x90};
  if (lead < 0xf4) return {.bytes = 4};
  if (lead == 0xf4) return {.bytes = 4, .second_high = 0x8f};
  return {.bytes = 0};
}

// Size in bytes of the character at the start of `text`; 0 if it is invalid.
std::size_t character_size(std::string_view text) {
  const Form form = form_of(static_cast<std::uint8_t>(text[0]));
  if (form.bytes <= 1) return form.bytes;
  if (text.size() < form.bytes) return 0;
  const auto second = static_cast<std::uint8_t>(text[1]);
  if (second < form.second_low || second > form.second_high) return 0;
  const std::string_view rest = text.substr(2, form.bytes - 2);
  return std::all_of(rest.begin(), rest.end(), is_continuation) ? form.bytes : 0;
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = 0;
    if (text.size() - at >= sizeof(word)) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & kHighBits) == 0) {  // most text is ASCII
        at += sizeof(word);
        continue;
      }
    }
    const std::size_t bytes = character_size(text.substr(at));
    if (bytes == 0) return at;
    at += bytes;
  }
  return std::string_view::npos;
}

std::size_t character_begin(std::string_view text, std::size_t position) {
  if (position >= text.size()) return text.size();
  while (position > 0 && is_continuation(text[position])) --position;
  return position;
}

}  // namespace tessera::models::data
