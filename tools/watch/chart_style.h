#pragma once

/// The style of charts.

#include <string>
#include <string_view>

namespace tessera::tools {

inline constexpr int kChartColours = 8;

/// The CSS of all charts, for light and dark backgrounds. Its classes begin with "tc-".
std::string_view chart_css();

/// A `<text>` and a `<line>` element with a class of the CSS. The text may hold any bytes.
std::string text_at(double x, double y, std::string_view kind, std::string_view anchor,
                    std::string_view text);
std::string line_at(std::string_view kind, double x1, double y1, double x2, double y2);

/// The largest width of a text in the fonts that a browser may choose.
double text_width(std::string_view text, double font_size);

}  // namespace tessera::tools
