#include "tessera/tools/watch/chart_style.h"

#include <fmt/format.h>

#include "tessera/tools/watch/markup.h"

namespace tessera::tools {

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

}  // namespace tessera::tools
