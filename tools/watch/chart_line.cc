#include "tessera/tools/watch/chart_line.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

namespace tessera::tools {
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

}  // namespace tessera::tools
