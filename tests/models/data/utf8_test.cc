// UTF-8 checks, compared with an encoder: every sequence that is a character, and no other.
#include "tessera/models/data/utf8.h"

#include <rapidcheck.h>
#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "tessera/tests/models/data/test_data.h"

namespace tessera::models::data {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

// Whether all of `text` is one character: the encoder writes the same bytes for the code point that
// its bits give.
bool is_character(const std::string& text) {
  const auto bits = [&](std::size_t i, unsigned mask) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]) & mask);
  };
  std::uint32_t point = bits(0, text.size() == 1 ? 0x7f : 0x7f >> text.size());
  for (std::size_t i = 1; i < text.size(); ++i) point = point << 6 | bits(i, 0x3f);
  const bool surrogate = point >= 0xd800 && point < 0xe000;
  return point < 0x110000 && !surrogate && testing::utf8_of(point) == text;
}

std::string bytes_of(std::initializer_list<unsigned> values) {
  std::string text;
  for (const unsigned value : values) text.push_back(static_cast<char>(value));
  return text;
}

TEST_CASE("of one and two bytes, those that the encoder writes are UTF-8") {
  long wrong = 0;
  for (unsigned first = 0; first < 256; ++first) {
    wrong += find_invalid_utf8(bytes_of({first})) != (first < 0x80 ? kNone : 0);
    for (unsigned second = 0; second < 256; ++second) {
      const std::string text = bytes_of({first, second});
      const bool ascii = first < 0x80 && second < 0x80;
      const std::size_t bad = first < 0x80 ? 1 : 0;
      wrong += find_invalid_utf8(text) != (ascii || is_character(text) ? kNone : bad);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("of three bytes from E0 on, those that the encoder writes are UTF-8") {
  long wrong = 0, right = 0;
  for (unsigned first = 0xe0; first < 256; ++first)
    for (unsigned second = 0; second < 256; ++second)
      for (unsigned third = 0; third < 256; ++third) {
        const std::string text = bytes_of({first, second, third});
        right += is_character(text);
        wrong += find_invalid_utf8(text) != (is_character(text) ? kNone : 0);
      }
  CHECK(wrong == 0);
  CHECK(right == 0x10000 - 0x800 - 0x800);
}

TEST_CASE("of four bytes from F0 on, those that the encoder writes are UTF-8") {
  constexpr std::array kEdges = {0x00u, 0x41u, 0x7fu, 0x80u, 0x8fu, 0xbfu, 0xc0u, 0xffu};
  long wrong = 0, right = 0;
  for (unsigned first = 0xf0; first < 256; ++first)
    for (unsigned second = 0; second < 256; ++second)
      for (const unsigned third : kEdges)
        for (const unsigned fourth : kEdges) {
          const std::string text = bytes_of({first, second, third, fourth});
          right += is_character(text);
          wrong += find_invalid_utf8(text) != (is_character(text) ? kNone : 0);
        }
  CHECK(wrong == 0);
  CHECK(right == 256 * 9);
}

TEST_CASE("property: the first bad byte of a text is found, wherever it stands") {
  CHECK(rc::check("a good text has none, a spoiled one at the place", [] {
    const std::string good = testing::random_text(), rest = testing::random_text();
    RC_ASSERT(find_invalid_utf8(good) == kNone);
    static const std::vector<std::string> bad = {
        "\x80", "\xff", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8"};
    RC_ASSERT(find_invalid_utf8(good + *rc::gen::elementOf(bad) + rest) == good.size());
    const std::string point = testing::utf8_of(*rc::gen::inRange<std::uint32_t>(0x80, 0xd800));
    RC_ASSERT(find_invalid_utf8(good + point.substr(0, point.size() - 1)) == good.size());
  }));
}

TEST_CASE("property: a character's begin is where the text before it is whole") {
  CHECK(rc::check("and at most three bytes back", [] {
    const std::string text = testing::random_text();
    const auto at =
        static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(text.size()) + 2));
    const std::size_t begin = character_begin(text, at);
    RC_ASSERT(begin <= text.size());
    RC_ASSERT(begin <= at);
    RC_ASSERT(at - begin < 4 || at >= text.size());
    RC_ASSERT(find_invalid_utf8(text.substr(0, begin)) == kNone);
    RC_ASSERT(find_invalid_utf8(text.substr(begin)) == kNone);
  }));
}

}  // namespace
}  // namespace tessera::models::data
