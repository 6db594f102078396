// Tests of axes: round ticks, their labels, positions of values, and empty ranges.

#include "tessera/models/watch/axis.h"

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tessera/models/watch/chart.h"
#include "tessera/tests/models/watch/readers.h"

namespace tessera::models::watch {
namespace {

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> out;
  for (const AxisTick& tick : axis.ticks()) out.push_back(tick.label);
  return out;
}

using Labels = std::vector<std::string>;

TEST_CASE("axis: ticks of a linear axis are round", "[watch]") {
  CHECK(labels(Axis(0, 1500, {.ticks = 8})) ==
        Labels{"0", "200", "400", "600", "800", "1000", "1200", "1400"});
  CHECK(labels(Axis(0, 6e-4, {.to_ticks = true, .ticks = 4})) ==
        Labels{"0", "2e-4", "4e-4", "6e-4"});
  CHECK(labels(Axis(0.5e-5, 1.5e-5, {.ticks = 4})) == Labels{"0.5e-5", "1.0e-5", "1.5e-5"});
  CHECK(labels(Axis(0, 18170, {.to_ticks = true, .ticks = 4})) ==
        Labels{"0", "5k", "10k", "15k", "20k"});
  CHECK(labels(Axis(0, 9e5, {.to_ticks = true, .ticks = 2})) == Labels{"0", "0.5M", "1.0M"});
  CHECK(labels(Axis(-300, 20000, {.to_ticks = true, .ticks = 4})) ==
        Labels{"-10k", "0", "10k", "20k"});
  CHECK(labels(Axis(0, 442.0 * 1048576, {.bytes = true, .to_ticks = true, .ticks = 4})) ==
        Labels{"0 B", "200 MiB", "400 MiB", "600 MiB"});
  CHECK(labels(Axis(1, 3, {.whole_numbers = true, .ticks = 8})) == Labels{"1", "2", "3"});
  CHECK(labels(Axis(1.2, 1.9, {.to_ticks = true, .ticks = 4})) ==
        Labels{"1.2", "1.4", "1.6", "1.8", "2.0"});
}

TEST_CASE("axis: places and ends", "[watch]") {
  const Axis linear(3, 17, {.to_ticks = true, .ticks = 4});
  CHECK(linear.low() == 0);
  CHECK(linear.high() == 20);
  CHECK(linear.place(5) == Approx(0.25));
  const Axis zero(3, 17, {.from_zero = true});
  CHECK(zero.low() == 0);
  CHECK(zero.high() == 17);
  const Axis logarithmic(0.01, 100, {.log_scale = true});
  CHECK(logarithmic.low() < 0.01);
  CHECK(logarithmic.high() > 100);
  CHECK(logarithmic.place(1) == Approx(0.5));
  CHECK(logarithmic.place(logarithmic.high()) == Approx(1));
}

TEST_CASE("axis: ticks of a logarithmic axis", "[watch]") {
  CHECK(labels(Axis(1.6, 10.4, {.log_scale = true})) ==
        Labels{"1.5", "2", "3", "4", "5", "7", "10"});
  CHECK(labels(Axis(0.05, 4, {.log_scale = true})) ==
        Labels{"0.05", "0.1", "0.2", "0.5", "1", "2"});
  CHECK(labels(Axis(0.01, 10, {.log_scale = true})) ==
        Labels{"0.01", "0.03", "0.1", "0.3", "1", "3", "10"});
  CHECK(labels(Axis(1e-12, 2e9, {.log_scale = true})) ==
        Labels{"1e-12", "1e-8", "1e-4", "1", "10k", "100M"});
  CHECK(labels(Axis(3, 4, {.log_scale = true})) == Labels{"3.0", "3.5", "4.0"});
}

// For any range: some ticks within it, in order, and finite positions.
void check_axis(double low, double high, const AxisOptions& options) {
  const Axis axis(low, high, options);
  CAPTURE(low, high, options.log_scale, options.bytes, options.to_ticks);
  REQUIRE(!axis.ticks().empty());
  CHECK(axis.ticks().size() <= 13);
  CHECK(axis.low() < axis.high());
  double before = -INFINITY;
  for (const AxisTick& tick : axis.ticks()) {
    CHECK(tick.value > before);
    before = tick.value;
    CHECK(axis.place(tick.value) >= -1e-6);
    CHECK(axis.place(tick.value) <= 1 + 1e-6);
    CHECK(tick.label.size() <= 12);
  }
  for (const double value : {low, high}) {
    CHECK(axis.place(value) >= -1e-6);
    CHECK(axis.place(value) <= 1 + 1e-6);
  }
}

TEST_CASE("axis: any range has an axis", "[watch]") {
  const std::vector<double> values = {-1e300, -4.2e17, -3, -1e-7, 0,   1e-300, 3.3e-9, 0.1,
                                      1,      1.0001,  7,  1024,  1e4, 123456, 9.9e15, 1e300};
  for (const double low : values)
    for (const double high : values) {
      if (low > high) continue;
      for (const bool bytes : {false, true})
        for (const bool to_ticks : {false, true}) {
          check_axis(low, high, {.bytes = bytes, .to_ticks = to_ticks, .ticks = 4});
          check_axis(low, high, {.bytes = bytes, .from_zero = true, .to_ticks = to_ticks});
          if (low > 0) check_axis(low, high, {.log_scale = true, .bytes = bytes});
        }
    }
}

TEST_CASE("axis: labels of single values", "[watch]") {
  CHECK(plain_label(0) == "0");
  CHECK(plain_label(1.66234) == "1.662");
  CHECK(plain_label(9999) == "9999");
  CHECK(plain_label(18170) == "18.17k");
  CHECK(plain_label(-2.5e6) == "-2.5M");
  CHECK(plain_label(6.25e-4) == "6.25e-4");
  CHECK(plain_label(3e20) == "3e20");
  CHECK(plain_label(NAN) == "not finite");
  CHECK(plain_label(-INFINITY) == "not finite");
  CHECK(bytes_label(0) == "0 B");
  CHECK(bytes_label(1023) == "1023 B");
  CHECK(bytes_label(1536) == "1.5 KiB");
  CHECK(bytes_label(42.5 * 1073741824) == "42.5 GiB");
}

}  // namespace

namespace {

// Tests of charts: they are parsed, and the drawn values are read back with the labels of the axes.

using testing::XmlElement;

double attribute(const XmlElement& element, const char* name) {
  return std::stod(element.attributes.at(name));
}

// Maps a position to a value, from the labels of an axis.
struct Ruler {
  double place0, value0, place1, value1;
  bool log_scale;

  double value_at(double place) const {
    const double part = (place - place0) / (place1 - place0);
    return log_scale ? value0 * std::pow(value1 / value0, part) : value0 + (value1 - value0) * part;
  }
};

// Uses the outermost labels with plain numbers. The y of a label is 4 below its line.
Ruler ruler(const XmlElement& svg, const char* kind, const char* coordinate, bool log_scale) {
  const std::vector<const XmlElement*> labels = svg.of_class(kind);
  REQUIRE(labels.size() >= 2);
  const auto place = [&](const XmlElement& label) {
    return attribute(label, coordinate) - (coordinate[0] == 'y' ? 4 : 0);
  };
  return {place(*labels.front()), std::stod(labels.front()->text), place(*labels.back()),
          std::stod(labels.back()->text), log_scale};
}

std::vector<ChartPoint> drawn_points(const XmlElement& polyline) {
  std::vector<ChartPoint> out;
  std::istringstream pairs(polyline.attributes.at("points"));
  ChartPoint point;
  char comma = 0;
  while (pairs >> point.x >> comma >> point.y) out.push_back(point);
  return out;
}

// Labels and positions are printed to a tenth of a unit.
void check_drawn(const std::vector<ChartPoint>& points, const ChartOptions& options) {
  const XmlElement svg = testing::parse_xml(line_chart({{.name = "s", .points = points}}, options));
  const Ruler x = ruler(svg, "tc-x", "x", false);
  const Ruler y = ruler(svg, "tc-y", "y", options.log_scale);
  const std::vector<const XmlElement*> lines = svg.of_class("tc-line");
  REQUIRE(lines.size() == 1);
  const std::vector<ChartPoint> drawn = drawn_points(*lines[0]);
  REQUIRE(drawn.size() == points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    CAPTURE(i);
    const double x_unit = std::abs(x.value_at(drawn[i].x + 0.15) - x.value_at(drawn[i].x));
    const double y_unit = std::abs(y.value_at(drawn[i].y + 0.15) - y.value_at(drawn[i].y));
    CHECK(x.value_at(drawn[i].x) == Approx(points[i].x).margin(x_unit));
    CHECK(y.value_at(drawn[i].y) == Approx(points[i].y).margin(y_unit));
  }
}

TEST_CASE("chart: drawn points have the values of the data", "[watch]") {
  std::vector<ChartPoint> points;
  for (int i = 1; i <= 150; ++i)
    points.push_back({static_cast<double>(i), 1.5 + 8 * std::exp(-i / 30.0)});
  check_drawn(points, {});
  check_drawn(points, {.from_zero = true, .width = 573, .height = 280});
  check_drawn(points, {.log_scale = true});
  for (ChartPoint& point : points) point.y = 100 * std::sin(point.x);
  check_drawn(points, {});
}

TEST_CASE("chart: points may be smoothed or marked", "[watch]") {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 40; ++i) points.push_back({static_cast<double>(i), (i % 2) != 0 ? 3.0 : 1.0});
  const XmlElement smooth = testing::parse_xml(
      line_chart({{.name = "s", .points = points, .style = SeriesStyle::kSmoothed}}, {}));
  CHECK(smooth.of_class("tc-faint").size() == 1);
  CHECK(smooth.of_class("tc-line").size() == 1);
  CHECK(smooth.of_class("tc-note").size() == 1);
  const XmlElement marked = testing::parse_xml(
      line_chart({{.name = "s", .points = points, .style = SeriesStyle::kMarkers}}, {}));
  CHECK(marked.of_class("tc-dot").size() == 40);
  CHECK(marked.of_class("tc-faint").empty());
}

TEST_CASE("chart: texts of any bytes, and no resource from outside", "[watch]") {
  const std::string hostile = "<script>alert(\"x\")</script> & 'q' \xFF\x01]]>";
  const std::string text = line_chart(
      {{.name = hostile, .points = {{1, 2}, {2, 3}}}, {.name = hostile}}, {.id = "i",
                                                                           .title = hostile,
                                                                           .description = hostile,
                                                                           .x_label = hostile,
                                                                           .y_label = hostile});
  const XmlElement svg = testing::parse_xml(text);
  CHECK(svg.all("script").empty());
  CHECK(svg.attributes.at("aria-labelledby") == "i-title i-description");
  CHECK(svg.children[0].attributes.at("id") == "i-title");
  CHECK(svg.children[1].attributes.at("id") == "i-description");
  CHECK(svg.children[0].text.find("<script>alert(\"x\")</script> & 'q'") == 0);
  CHECK(text.find("href") == std::string::npos);
  CHECK(text.find("url(") == std::string::npos);
  CHECK(text.find("@import") == std::string::npos);
  CHECK(text.find("prefers-color-scheme:dark") != std::string::npos);
}

TEST_CASE("chart: a legend of several series, inside the picture", "[watch]") {
  std::vector<ChartSeries> series;
  for (int i = 0; i < 9; ++i)
    series.push_back({.name = "a rather long name of series number " + std::to_string(i),
                      .points = {{0, 1.0 * i}, {1, 2.0 * i}}});
  const XmlElement svg = testing::parse_xml(line_chart(series, {.title = "t", .y_label = "y"}));
  for (const ChartSeries& one : series) {
    int found = 0;
    for (const XmlElement* text : svg.of_class("tc-text")) {
      if (text->text != one.name) continue;
      ++found;
      CHECK(attribute(*text, "x") + 5.5 * static_cast<double>(one.name.size()) < 720);
    }
    CHECK(found == 1);
  }
  // The plot begins below it.
  for (const XmlElement* line : svg.of_class("tc-grid")) CHECK(attribute(*line, "y1") > 130);
}

TEST_CASE("chart: nothing, one point, a constant", "[watch]") {
  for (const std::vector<ChartSeries>& nothing :
       {std::vector<ChartSeries>{},
        {ChartSeries{.name = "a"}},
        {ChartSeries{.name = "a", .points = {{1, NAN}, {2, INFINITY}}}}})
    for (const bool log_scale : {false, true}) {
      const XmlElement svg = testing::parse_xml(line_chart(nothing, {.log_scale = log_scale}));
      CHECK(svg.all_text().find("no values yet") != std::string::npos);
      CHECK(svg.all("polyline").empty());
    }
  for (const bool log_scale : {false, true}) {
    const XmlElement one = testing::parse_xml(
        line_chart({{.name = "a", .points = {{5, 3.25}}}}, {.log_scale = log_scale}));
    REQUIRE(one.all("circle").size() == 1);
    CHECK(attribute(*one.all("circle")[0], "cy") > 60);
    const XmlElement constant = testing::parse_xml(line_chart(
        {{.name = "a", .points = {{1, 1e-5}, {2, 1e-5}, {3, 1e-5}}}}, {.log_scale = log_scale}));
    const auto drawn = drawn_points(*constant.of_class("tc-line").at(0));
    REQUIRE(drawn.size() == 3);
    CHECK(drawn[0].y == drawn[2].y);
    CHECK(drawn[0].x < drawn[1].x);
  }
  // No value is above 0: the axis is linear.
  const XmlElement negative = testing::parse_xml(
      line_chart({{.name = "a", .points = {{1, -1}, {2, 0}}}}, {.log_scale = true}));
  CHECK(negative.all("polyline").size() == 1);
}

TEST_CASE("chart: what is not finite leaves gaps, is marked and counted", "[watch]") {
  const std::vector<ChartPoint> points = {{1, 1},         {2, NAN}, {3, 2}, {4, 3},
                                          {5, -INFINITY}, {6, 4},   {7, 5}};
  const std::string text = line_chart({{.name = "a", .points = points}}, {});
  const XmlElement svg = testing::parse_xml(text);
  CHECK(svg.of_class("tc-line").size() == 2);
  CHECK(svg.all("circle").size() == 1);
  CHECK(svg.of_class("tc-bad").size() == 1);
  CHECK(svg.of_class("tc-bad-text").at(0)->text == "\xC3\x97 2 values not finite");
  CHECK(svg.all("svg").size() == 1);
  CHECK(svg.attributes.count("data-x") == 0);
  for (const XmlElement* line : svg.all("polyline"))
    CHECK(line->attributes.at("points").find("nan") == std::string::npos);
  const XmlElement logarithmic = testing::parse_xml(
      line_chart({{.name = "a", .points = {{1, 1}, {2, 0}, {3, 2}}}}, {.log_scale = true}));
  CHECK(logarithmic.of_class("tc-bad-text").at(0)->text ==
        "\xC3\x97 1 value not finite or not above 0");
}

TEST_CASE("chart: a million points stay a small picture with its spikes", "[watch]") {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 1000000; ++i)
    points.push_back({static_cast<double>(i), 1 + 0.3 * std::sin(i * 0.7)});
  points[777777].y = 50;
  const std::string text =
      line_chart({{.name = "a", .points = points, .style = SeriesStyle::kSmoothed},
                  {.name = "b", .points = points}},
                 {});
  CHECK(text.size() < 150000);
  const XmlElement svg = testing::parse_xml(text);
  const Ruler y = ruler(svg, "tc-y", "y", false);
  double largest = 0;
  for (const ChartPoint& point : drawn_points(*svg.of_class("tc-faint").at(0)))
    largest = std::max(largest, y.value_at(point.y));
  CHECK(largest == Approx(50).margin(0.2));
  // Adding NaN values does not make the chart longer.
  for (std::size_t i = 0; i < points.size(); i += 2) points[i].y = NAN;
  CHECK(line_chart({{.name = "a", .points = points}}, {}).size() < 150000);
}

TEST_CASE("chart: the description tells what is to be seen", "[watch]") {
  const XmlElement svg = testing::parse_xml(line_chart(
      {{.name = "loss", .points = {{1, 8}, {2, 2}, {3, 4}}}}, {.description = "The loss."}));
  CHECK(svg.all("desc").at(0)->text ==
        "The loss. loss: 3 points, first 8, last 4, smallest 2, largest 8.");
}

}  // namespace
}  // namespace tessera::models::watch
