// Texts as JSON: what nlohmann's library writes, byte for byte, which it checks by another
// algorithm.
#include "tessera/distributed/trace/json_text.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace tessera::distributed {
namespace {

std::string expected_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Not Catch's macro for each: there are tens of thousands.
void check_text(const std::string& text) {
  if (json_text(text) != expected_text(text)) CHECK(json_text(text) == expected_text(text));
}

TEST_CASE("JSON text: every byte, alone and among others") {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    check_text(text);
    check_text("a" + text + "b" + text);
  }
  CHECK(json_text("") == "\"\"");
  CHECK(json_text("a \"b\" \\ /\x7f\x01\n") == "\"a \\\"b\\\" \\\\ /\x7f\\u0001\\n\"");
  CHECK(json_text("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") ==
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
  // Two of a character of three, then a byte that is none, then a surrogate.
  CHECK(json_text("\xe2\x82\xff\xed\xa0\x80") ==
        "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

TEST_CASE("JSON text: every way to begin, break and end characters of UTF-8") {
  // Both ends of every range of table 3-7.
  const std::string bytes =
      "\n\"a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4"
      "\xf5\xff";
  // All that matters in a third and fourth byte.
  const std::string later = "a\x7f\x80\xbf\xc2\xff";
  for (const char a : bytes)
    for (const char b : bytes)
      for (const char c : later) {
        check_text({a, b, c});
        for (const char d : later) check_text({a, b, c, d});
      }
  std::string all;
  for (const char a : bytes)
    for (const char b : bytes) all += {a, b};
  check_text(all);
}

}  // namespace
}  // namespace tessera::distributed
