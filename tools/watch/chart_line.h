#pragma once

/// From the points of a series to what is drawn of them.

#include <vector>

#include "tessera/tools/watch/chart.h"

namespace tessera::tools {

/// The points with NaN for a y that cannot be drawn, and without those whose x cannot: numbers that
/// are not finite or above 1e300, and on a logarithmic axis those that are not above 0.
std::vector<ChartPoint> drawable(const std::vector<ChartPoint>& points, bool log_scale);

/// The points with, as y, what a straight line through their surroundings has there. Weights fall
/// by exp(-distance / (window/2)) on both sides: in the middle of a series it is their mean, and
/// it neither lags nor bends at the ends. Distances count points; a y that is NaN has no weight and
/// stays NaN. Results stay between the smallest and the largest y.
std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points, double window);
/// The window for so many points; 0: too few to be worth it.
double smoothing_window(std::size_t count);

struct DrawnLines {
  std::vector<std::vector<ChartPoint>> lines;  ///< broken where only NaN stands
  std::vector<ChartPoint> gaps;                ///< x of NaN, one a column at most; y is NaN
};
/// Of the points in each of `columns` equal parts of [low, high]: the first, the smallest, the
/// largest and the last.
DrawnLines decimated(const std::vector<ChartPoint>& points, double low, double high, int columns);

}  // namespace tessera::tools
