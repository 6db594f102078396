#include "tessera/models/watch/chart_parts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include <fmt/format.h>

#include "tessera/models/watch/markup.h"

namespace tessera::models::watch {
namespace {

// Sums for a straight-line fit over the points on one side, with larger weights for nearer points.
struct FadingSums {
  double weight = 0, distance = 0, square = 0;  // of the weights, times distance, times its square
  double value = 0, moment = 0;                 // of the values, and times distance

  // Moves away by one point.
  void move(double factor) {
    square = factor * (square + 2 * distance + weight);
    distance = factor * (distance + weight);
    weight *= factor;
    moment = factor * (moment + value);
    value *= factor;
  }
  void add(double y) {
    if (std::isnan(y)) return;
    weight += 1;
    value += y;
  }
};

// The fitted line at distance 0; the mean if a line is not determined.
double fitted(const FadingSums& before, const FadingSums& from) {
  const double weight = before.weight + from.weight;
  const double distance = from.distance - before.distance;
  const double square = before.square + from.square;
  const double value = before.value + from.value;
  const double moment = from.moment - before.moment;
  const double spread = weight * square - distance * distance;
  const double line = (square * value - distance * moment) / spread;
  return spread > 0 && std::isfinite(line) ? line : value / weight;
}

// Appends at most four finite points of the column [begin, end), in order.
void append_extremes(const std::vector<ChartPoint>& points, std::size_t begin, std::size_t end,
                     std::vector<ChartPoint>& line) {
  std::array<std::size_t, 4> kept{};  // first, smallest, largest, last
  bool any = false;
  for (std::size_t i = begin; i < end; ++i) {
    if (std::isnan(points[i].y)) continue;
    if (!any) kept = {i, i, i, i};
    any = true;
    if (points[i].y < points[kept[1]].y) kept[1] = i;
    if (points[i].y > points[kept[2]].y) kept[2] = i;
    kept[3] = i;
  }
  if (!any) return;
  std::sort(kept.begin(), kept.end());
  const auto last = std::unique(kept.begin(), kept.end());
  for (auto at = kept.begin(); at != last; ++at) line.push_back(points[*at]);
}

}  // namespace

double smoothing_window(std::size_t count) {
  constexpr std::size_t kFewest = 20;
  constexpr double kPart = 40;
  return count < kFewest ? 0 : std::max(5.0, static_cast<double>(count) / kPart);
}

std::vector<ChartPoint> drawable(const std::vector<ChartPoint>& points, bool log_scale) {
  // The limits of axes: the difference of two values is then finite.
  constexpr double kLargest = 1e300, kSmallestLogarithmic = 1e-300;
  std::vector<ChartPoint> out;
  out.reserve(points.size());
  for (ChartPoint point : points) {
    if (!(std::abs(point.x) <= kLargest)) continue;
    if (!(std::abs(point.y) <= kLargest) || (log_scale && point.y < kSmallestLogarithmic))
      point.y = std::numeric_limits<double>::quiet_NaN();
    out.push_back(point);
  }
  return out;
}

std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points, double window) {
  const double factor = std::exp(-2 / window);
  std::vector<FadingSums> from(points.size());  // from the point itself on
  FadingSums sums;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (std::size_t i = points.size(); i-- > 0;) {
    sums.move(factor);
    sums.add(points[i].y);
    from[i] = sums;
    low = std::fmin(low, points[i].y);
    high = std::fmax(high, points[i].y);
  }
  std::vector<ChartPoint> out = points;
  sums = {};
  for (std::size_t i = 0; i < points.size(); ++i) {
    sums.move(factor);
    if (!std::isnan(points[i].y)) out[i].y = std::clamp(fitted(sums, from[i]), low, high);
    sums.add(points[i].y);
  }
  return out;
}

DrawnLines decimated(const std::vector<ChartPoint>& points, double low, double high, int columns) {
  DrawnLines drawn;
  const auto column_of = [&](const ChartPoint& point) {
    return std::floor((point.x - low) / (high - low) * columns);
  };
  bool broken = true;
  for (std::size_t begin = 0; begin < points.size();) {
    std::size_t end = begin;
    std::size_t finite = 0;
    const double column = column_of(points[begin]);
    for (; end < points.size() && column_of(points[end]) == column; ++end)
      finite += !std::isnan(points[end].y);
    if (finite < end - begin) {
      const auto gap =
          std::find_if(points.begin() + static_cast<std::ptrdiff_t>(begin), points.end(),
                       [](const ChartPoint& point) { return std::isnan(point.y); });
      drawn.gaps.push_back(*gap);
    }
    if (finite > 0 && broken) drawn.lines.emplace_back();
    if (finite > 0) append_extremes(points, begin, end, drawn.lines.back());
    broken = finite == 0;
    begin = end;
  }
  return drawn;
}

// Without custom properties, which not every SVG viewer supports.
std::string_view chart_css() {
  return R"css(
.tc-chart{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
.tc-ground{fill:#ffffff}
.tc-title{font-size:15px;font-weight:600;fill:#1f2937}
.tc-text{font-size:11px;fill:#4b5563}
.tc-note{font-size:10px;fill:#6b7280}
.tc-bad-text{font-size:10px;fill:#b91c1c}
.tc-grid{stroke:#e5e7eb;stroke-width:1}
.tc-axis{stroke:#9ca3af;stroke-width:1}
.tc-bad{stroke:#dc2626;stroke-width:1.2;fill:none}
.tc-line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.tc-faint{fill:none;stroke-width:1;stroke-linejoin:round;opacity:.3}
.tc-dot{stroke:none}
.tc-l0{stroke:#2563eb}.tc-d0{fill:#2563eb}
.tc-l1{stroke:#c2410c}.tc-d1{fill:#c2410c}
.tc-l2{stroke:#15803d}.tc-d2{fill:#15803d}
.tc-l3{stroke:#7e22ce}.tc-d3{fill:#7e22ce}
.tc-l4{stroke:#be185d}.tc-d4{fill:#be185d}
.tc-l5{stroke:#0e7490}.tc-d5{fill:#0e7490}
.tc-l6{stroke:#854d0e}.tc-d6{fill:#854d0e}
.tc-l7{stroke:#475569}.tc-d7{fill:#475569}
@media (prefers-color-scheme:dark){
.tc-ground{fill:#0f1419}
.tc-title{fill:#e5e7eb}
.tc-text{fill:#b6bdc8}
.tc-note{fill:#9aa3b0}
.tc-bad-text{fill:#fca5a5}
.tc-grid{stroke:#262d36}
.tc-axis{stroke:#6b7280}
.tc-bad{stroke:#f87171}
.tc-faint{opacity:.38}
.tc-l0{stroke:#6ea8fe}.tc-d0{fill:#6ea8fe}
.tc-l1{stroke:#fb923c}.tc-d1{fill:#fb923c}
.tc-l2{stroke:#4ade80}.tc-d2{fill:#4ade80}
.tc-l3{stroke:#c084fc}.tc-d3{fill:#c084fc}
.tc-l4{stroke:#f472b6}.tc-d4{fill:#f472b6}
.tc-l5{stroke:#22d3ee}.tc-d5{fill:#22d3ee}
.tc-l6{stroke:#facc15}.tc-d6{fill:#facc15}
.tc-l7{stroke:#cbd5e1}.tc-d7{fill:#cbd5e1}
}
)css";
}

double text_width(std::string_view text, double font_size) {
  constexpr double kWidestAverage = 0.62;  // of DejaVu Sans; most are narrower
  return static_cast<double>(character_count(text)) * font_size * kWidestAverage;
}

std::string text_at(double x, double y, std::string_view kind, std::string_view anchor,
                    std::string_view text) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                     kind, x, y, anchor, escaped(text));
}

std::string line_at(std::string_view kind, double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1,
      y1, x2, y2);
}

}  // namespace tessera::models::watch
