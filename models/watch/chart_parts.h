#pragma once

/// What line_chart (chart.h) is made of: the points of a series that are drawn, and the style of
/// charts. Private to this folder.

#include <string>
#include <string_view>
#include <vector>

#include "tessera/models/watch/chart.h"

namespace tessera::models::watch {

/// Reduces the points of a series to those that are drawn.

/// Replaces a y that cannot be drawn by NaN and removes points whose x cannot be drawn: numbers
/// that are not finite or above 1e300, and, on a logarithmic axis, not above 0.
std::vector<ChartPoint> drawable(const std::vector<ChartPoint>& points, bool log_scale);

/// Smooths y by a local straight-line fit. Weights fall by exp(-distance / (window/2)) on both
/// sides: in the middle of a series this is a weighted mean, and the result neither lags nor bends
/// at the ends. Distances count points; NaN has no weight and stays NaN. Results stay between the
/// smallest and the largest y.
std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points, double window);
/// The window for so many points; 0 if there are too few to smooth.
double smoothing_window(std::size_t count);

struct DrawnLines {
  std::vector<std::vector<ChartPoint>> lines;  ///< broken at columns with NaN only
  std::vector<ChartPoint> gaps;                ///< x of NaN, at most one per column; y is NaN
};
/// Keeps, in each of `columns` equal parts of [low, high], the first, smallest, largest and last
/// point.
DrawnLines decimated(const std::vector<ChartPoint>& points, double low, double high, int columns);

/// The style of charts.
inline constexpr int kChartColours = 8;

/// The CSS of all charts, for light and dark backgrounds. Its classes begin with "tc-".
std::string_view chart_css();

/// A `<text>` and a `<line>` element with a class of the CSS. The text may hold any bytes.
std::string text_at(double x, double y, std::string_view kind, std::string_view anchor,
                    std::string_view text);
std::string line_at(std::string_view kind, double x1, double y1, double x2, double y2);

/// The largest width of a text in the fonts that a browser may choose.
double text_width(std::string_view text, double font_size);

}  // namespace tessera::models::watch
