// Tests of text inside XML: escapes, invalid UTF-8, lengths in characters.
#include "tessera/tools/watch/markup.h"

#include <catch2/catch.hpp>
#include <string>

#include "tessera/tests/tools/watch/xml.h"

namespace tessera::tools {
namespace {

const std::string kBad = "\xEF\xBF\xBD";  // U+FFFD

TEST_CASE("markup: characters that mean something are escaped", "[watch]") {
  CHECK(escaped("a < b > c & \"d\" 'e'") == "a &lt; b &gt; c &amp; &quot;d&quot; &#39;e&#39;");
  CHECK(escaped("plain\n\ttext\r") == "plain\n\ttext\r");
  CHECK(escaped("").empty());
  CHECK(escaped("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80") ==
        "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
}

TEST_CASE("markup: what XML has no room for becomes U+FFFD", "[watch]") {
  CHECK(escaped(std::string_view("\0\x01\x1F", 3)) == kBad + kBad + kBad);
  CHECK(escaped("\xFF") == kBad);
  CHECK(escaped("\x80x") == kBad + "x");
  CHECK(escaped("\xC0\xAF") == kBad + kBad);   // overlong
  CHECK(escaped("\xE0\x80\xAF") == kBad);      // overlong
  CHECK(escaped("\xED\xA0\x80") == kBad);      // a surrogate
  CHECK(escaped("\xEF\xBF\xBF") == kBad);      // U+FFFF
  CHECK(escaped("\xF4\x90\x80\x80") == kBad);  // above U+10FFFF
  CHECK(escaped("\xE2\x82") == kBad);          // cut at the end
  CHECK(escaped("\xE2\x82<") == kBad + "&lt;");
}

TEST_CASE("markup: readable text is UTF-8 and otherwise as it was", "[watch]") {
  CHECK(readable("a <b> & \"\n\xC3\xA9") == "a <b> & \"\n\xC3\xA9");
  CHECK(readable("\xC3") == kBad);
  CHECK(readable("\x01\xFFz") == kBad + kBad + "z");
  CHECK(readable("").empty());
}

TEST_CASE("markup: any bytes give a document that can be parsed", "[watch]") {
  std::string every;
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; second += 5) {
      every += static_cast<char>(first);
      every += static_cast<char>(second);
    }
  const testing::XmlElement parsed =
      testing::parse_xml("<a b=\"" + escaped(every) + "\">" + escaped(every) + "</a>");
  CHECK(parsed.attributes.at("b") == parsed.text);
}

TEST_CASE("markup: lengths count characters", "[watch]") {
  CHECK(character_count("\xC3\xA9t\xC3\xA9") == 3);
  CHECK(shortened("\xC3\xA9t\xC3\xA9", 3) == "\xC3\xA9t\xC3\xA9");
  CHECK(shortened("\xC3\xA9t\xC3\xA9", 2) == "\xC3\xA9\xE2\x80\xA6");
  CHECK(shortened("abcdef", 4) == "abc\xE2\x80\xA6");
}

TEST_CASE("markup: the test's own parser refuses what is not well-formed", "[watch]") {
  for (const char* wrong : {"<a>", "<a></b>", "<a b=\"1\" b=\"2\"/>", "<a>&nbsp;</a>", "<a/><b/>",
                            "<a>\x01</a>", "<a>\xFF</a>", "<a b=\"<\"/>"})
    CHECK_THROWS_AS(testing::parse_xml(wrong), std::runtime_error);
}

}  // namespace
}  // namespace tessera::tools
