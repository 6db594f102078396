#pragma once

/// Line charts as SVG text, without scripts, fonts or other external files. They are readable on
/// light and dark backgrounds (prefers-color-scheme) and have a title and a description for screen
/// readers.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::models::watch {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

enum class SeriesStyle : std::uint8_t {
  kLine,
  kSmoothed,  ///< faint points, and a smoothed line over them
  kMarkers,   ///< a line with a dot at each point: for few points
};

struct ChartSeries {
  std::string name = {};  ///< in the legend
  /// Sorted by x. A y that is not finite (or, on a logarithmic axis, not above 0) leaves a gap in
  /// the line and a red cross at the top.
  std::vector<ChartPoint> points = {};
  SeriesStyle style = SeriesStyle::kLine;
};

enum class ValueUnit : std::uint8_t {
  kPlain,  ///< 0.05, 20k, 3M
  kBytes,  ///< round numbers of KiB, MiB, GiB ...
};

struct ChartOptions {
  /// Letters, digits, '-' and '_'. Names the elements of the chart, so that several charts fit in
  /// one page.
  std::string id = "chart";
  std::string title = {};
  std::string description = {};  ///< a sentence or two for screen readers
  std::string x_label = "step";
  std::string y_label = {};  ///< with the unit: "tokens per second"
  ValueUnit unit = ValueUnit::kPlain;
  bool log_scale = false;  ///< of y; the axis is linear if no y is above 0
  bool from_zero = false;  ///< the y axis begins at 0 (a linear one)
  double width = 720;      ///< in units in which text has size 11
  double height = 320;
};

/// An `<svg>` element that shrinks with the page. Texts may hold any bytes. Up to 8 series have
/// different colours.
///
/// A series of any length is reduced to at most four points per unit of width: the first, the
/// smallest, the largest and the last, so that no spike is lost.
std::string line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options);

}  // namespace tessera::models::watch
