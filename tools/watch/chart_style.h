#pragma once

/// How charts look.

#include <string>
#include <string_view>

namespace tessera::tools {

inline constexpr int kChartColours = 8;

/// The CSS of all charts, for light and dark ground; its classes begin with "tc-".
std::string_view chart_css();

/// A `<text>` and a `<line>` of a class of the CSS. The text may hold any bytes.
std::string text_at(double x, double y, std::string_view kind, std::string_view anchor,
                    std::string_view text);
std::string line_at(std::string_view kind, double x1, double y1, double x2, double y2);

/// Units that a text takes at most in the fonts a browser may choose.
double text_width(std::string_view text, double font_size);

}  // namespace tessera::tools
