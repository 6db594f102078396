// Tests of the drawn points of a series: smoothing without lag, extremes are kept, gaps.

#include "tessera/models/watch/chart_parts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tessera/models/watch/markup.h"
#include "tessera/tests/models/watch/readers.h"

namespace tessera::models::watch {
namespace {

std::vector<ChartPoint> points_of(const std::vector<double>& ys) {
  std::vector<ChartPoint> out;
  for (std::size_t i = 0; i < ys.size(); ++i) out.push_back({static_cast<double>(i), ys[i]});
  return out;
}

TEST_CASE("chart line: smoothing keeps a straight line, also at its ends", "[watch]") {
  std::vector<double> ys;
  for (int i = 0; i < 57; ++i) ys.push_back(9 - 0.125 * i);
  const std::vector<ChartPoint> smooth = smoothed(points_of(ys), 11);
  for (std::size_t i = 0; i < ys.size(); ++i) CHECK(smooth[i].y == Approx(ys[i]).epsilon(1e-12));
}

TEST_CASE("chart line: smoothing fits the weighted line", "[watch]") {
  const std::vector<double> ys = {3, 1, 4, 1, 5, 9, 2, 6};
  const double window = 3;
  const std::vector<ChartPoint> smooth = smoothed(points_of(ys), window);
  for (std::size_t at = 0; at < ys.size(); ++at) {
    double w = 0, d = 0, q = 0, v = 0, m = 0;
    for (std::size_t i = 0; i < ys.size(); ++i) {
      const double distance = static_cast<double>(i) - static_cast<double>(at);
      const double weight = std::exp(-std::abs(distance) / (window / 2));
      w += weight;
      d += weight * distance;
      q += weight * distance * distance;
      v += weight * ys[i];
      m += weight * distance * ys[i];
    }
    const double expected = std::clamp((q * v - d * m) / (w * q - d * d), 1.0, 9.0);
    CHECK(smooth[at].y == Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("chart line: smoothing passes over NaN and survives huge values", "[watch]") {
  const std::vector<ChartPoint> smooth = smoothed(points_of({2, NAN, 2, 2, NAN}), 5);
  CHECK(std::isnan(smooth[1].y));
  CHECK(std::isnan(smooth[4].y));
  for (const std::size_t i : {0, 2, 3}) CHECK(smooth[i].y == Approx(2));
  for (const ChartPoint& point : smoothed(points_of({1e300, -1e300, 1e300, 5, -1e300}), 5))
    CHECK(std::abs(point.y) <= 1e300);
  CHECK(smoothed({}, 5).empty());
  CHECK(smoothed(points_of({7}), 5)[0].y == 7);
}

TEST_CASE("chart line: few points are not smoothed", "[watch]") {
  CHECK(smoothing_window(19) == 0);
  CHECK(smoothing_window(20) == 5);
  CHECK(smoothing_window(4000) == 100);
}

TEST_CASE("chart line: all of a short series is drawn", "[watch]") {
  const std::vector<ChartPoint> points = points_of({5, 3, 8, 1});
  const DrawnLines drawn = decimated(points, 0, 3, 600);
  REQUIRE(drawn.lines.size() == 1);
  REQUIRE(drawn.lines[0].size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(drawn.lines[0][i].x == points[i].x);
    CHECK(drawn.lines[0][i].y == points[i].y);
  }
  CHECK(drawn.gaps.empty());
}

TEST_CASE("chart line: first, smallest, largest and last of each column", "[watch]") {
  std::vector<double> ys;
  for (int i = 0; i < 1000; ++i) ys.push_back(i % 37 * ((i % 2) != 0 ? 1 : -1));
  ys[501] = 1000;
  ys[502] = -1000;
  constexpr int kColumns = 10;
  const DrawnLines drawn = decimated(points_of(ys), 0, 1000, kColumns);
  REQUIRE(drawn.lines.size() == 1);
  const std::vector<ChartPoint>& line = drawn.lines[0];
  CHECK(line.size() <= 4 * kColumns);
  CHECK(std::is_sorted(line.begin(), line.end(),
                       [](const auto& a, const auto& b) { return a.x < b.x; }));
  for (int column = 0; column < kColumns; ++column) {
    const auto begin = ys.begin() + column * 100, end = begin + 100;
    double low = INFINITY, high = -INFINITY;
    for (const ChartPoint& point : line)
      if (std::floor(point.x / 100) == column) {
        low = std::min(low, point.y);
        high = std::max(high, point.y);
      }
    CHECK(low == *std::min_element(begin, end));
    CHECK(high == *std::max_element(begin, end));
  }
}

TEST_CASE("chart line: NaN breaks the line where nothing else stands", "[watch]") {
  const DrawnLines sparse = decimated(points_of({1, NAN, 3, 4, NAN, NAN, 7}), 0, 6, 600);
  REQUIRE(sparse.lines.size() == 3);
  CHECK(sparse.lines[0].size() == 1);
  CHECK(sparse.lines[1].size() == 2);
  CHECK(sparse.lines[2].size() == 1);
  REQUIRE(sparse.gaps.size() == 3);
  CHECK(sparse.gaps[1].x == 4);
  // Every second value is NaN: the line continues, and each column has one mark.
  std::vector<double> ys;
  for (int i = 0; i < 1000; ++i) ys.push_back((i % 2) != 0 ? NAN : i);
  const DrawnLines dense = decimated(points_of(ys), 0, 1000, 10);
  CHECK(dense.lines.size() == 1);
  CHECK(dense.gaps.size() == 10);
}

TEST_CASE("chart line: what can be drawn", "[watch]") {
  const std::vector<ChartPoint> points = {{1, 2},  {NAN, 3}, {3, INFINITY},
                                          {4, -1}, {5, 0},   {6, 1e301}};
  const std::vector<ChartPoint> linear = drawable(points, false);
  REQUIRE(linear.size() == 5);
  CHECK(linear[0].y == 2);
  CHECK(std::isnan(linear[1].y));
  CHECK(linear[2].y == -1);
  CHECK(std::isnan(linear[4].y));
  const std::vector<ChartPoint> logarithmic = drawable(points, true);
  CHECK(logarithmic[0].y == 2);
  for (std::size_t i = 1; i < 5; ++i) CHECK(std::isnan(logarithmic[i].y));
}

}  // namespace

namespace {

// Tests of text inside XML: escapes, invalid UTF-8, lengths in characters.
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
}  // namespace tessera::models::watch
