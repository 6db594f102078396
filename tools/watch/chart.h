#pragma once

/// Line charts as SVG text: complete in themselves, without scripts, fonts or anything else from
/// outside, legible on light and on dark ground (prefers-color-scheme), with title and description
/// for those who do not see them.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::tools {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

enum class SeriesStyle : std::uint8_t {
  kLine,
  kSmoothed,  ///< the points faint, and over them a smoothed line
  kMarkers,   ///< a line with a dot at each point: for few points
};

struct ChartSeries {
  std::string name = {};  ///< in the legend
  /// In order of x. A y that is not finite (or, on a logarithmic axis, not above 0) leaves a gap
  /// in the line and a red cross at the top.
  std::vector<ChartPoint> points = {};
  SeriesStyle style = SeriesStyle::kLine;
};

enum class ValueUnit : std::uint8_t {
  kPlain,  ///< 0.05, 20k, 3M
  kBytes,  ///< round numbers of KiB, MiB, GiB ...
};

struct ChartOptions {
  /// Of letters, digits, '-' and '_': elements of the picture are named by it, so that several
  /// pictures fit in one page.
  std::string id = "chart";
  std::string title = {};
  std::string description = {};  ///< a sentence or two for screen readers
  std::string x_label = "step";
  std::string y_label = {};  ///< with the unit: "tokens per second"
  ValueUnit unit = ValueUnit::kPlain;
  bool log_scale = false;  ///< of y; where no y is above 0, the axis is linear
  bool from_zero = false;  ///< the y axis begins at 0 (a linear one)
  double width = 720;      ///< in units of a text's 11
  double height = 320;
};

/// An `<svg>` element that shrinks with the page around it. Texts may hold any bytes. Up to 8
/// series have colours of their own.
///
/// A series of any length becomes at most four points for each unit of width: the first, the
/// smallest, the largest and the last there, so that no spike is lost.
std::string line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options);

}  // namespace tessera::tools
