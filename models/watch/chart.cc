#include "tessera/models/watch/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/models/watch/axis.h"
#include "tessera/models/watch/chart_parts.h"
#include "tessera/models/watch/markup.h"

namespace tessera::models::watch {
namespace {

// Distances in units of the chart.
constexpr double kMargin = 16;
constexpr double kRight = 28;   // room for half of the last label
constexpr double kBottom = 46;  // labels of the x axis, and a line of notes
constexpr double kTitleLine = 26, kSecondLine = 46, kLegendRow = 17, kPlotGap = 18;
constexpr double kTextSize = 11, kTitleSize = 15, kNoteSize = 10;
constexpr double kSwatch = 18;
constexpr std::size_t kLongestName = 48;

struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

bool any_above_zero(const std::vector<ChartSeries>& series) {
  for (const ChartSeries& one : series)
    for (const ChartPoint& point : drawable(one.points, true))
      if (!std::isnan(point.y)) return true;
  return false;
}

// One chart under construction.
class Picture {
 public:
  Picture(const std::vector<ChartSeries>& series, const ChartOptions& options);
  std::string svg();

 private:
  void measure();
  std::string head() const;
  std::string description() const;
  std::string legend();
  std::string axes() const;
  std::string notes() const;
  std::string curves() const;
  std::string curve(std::size_t index) const;
  std::string lines(const std::vector<ChartPoint>& points, const std::string& kind,
                    std::size_t colour) const;
  std::string crosses() const;
  double x_of(double value) const { return left_ + x_axis_->place(value) * (right_ - left_); }
  double y_of(double value) const { return bottom_ - y_axis_->place(value) * (bottom_ - top_); }
  std::string label(double value) const {
    return options_.unit == ValueUnit::kBytes ? bytes_label(value) : plain_label(value);
  }

  const std::vector<ChartSeries>& series_;
  const ChartOptions& options_;
  const bool log_scale_;
  std::vector<std::vector<ChartPoint>> points_;  // per series; NaN for values that cannot be drawn
  std::size_t bad_ = 0;
  bool empty_ = true;  // true if there is nothing to draw
  std::optional<Axis> x_axis_, y_axis_;
  double left_ = 0, top_ = kSecondLine + kPlotGap;
  const double right_, bottom_;
};

Picture::Picture(const std::vector<ChartSeries>& series, const ChartOptions& options)
    : series_(series),
      options_(options),
      log_scale_(options.log_scale && any_above_zero(series)),
      right_(options.width - kRight),
      bottom_(options.height - kBottom) {
  for (const ChartSeries& one : series_) {
    points_.push_back(drawable(one.points, log_scale_));
    for (const ChartPoint& point : points_.back()) bad_ += std::isnan(point.y);
  }
  measure();
}

void Picture::measure() {
  Extent x, y;
  for (const auto& points : points_)
    for (const ChartPoint& point : points) {
      x.add(point.x);
      if (!std::isnan(point.y)) y.add(point.y);
    }
  empty_ = y.empty();
  if (x.empty()) x = {.low = 0, .high = 1};
  if (y.empty()) y = {.low = 0, .high = 1};
  // A run's first step is 1; the axis begins at 0.
  if (x.low > 0 && x.low < 0.05 * x.high) x.low = 0;
  x_axis_.emplace(x.low, x.high, AxisOptions{.whole_numbers = true, .ticks = 8});
  y_axis_.emplace(y.low, y.high,
                  AxisOptions{.log_scale = log_scale_ && !empty_,
                              .bytes = options_.unit == ValueUnit::kBytes,
                              .from_zero = options_.from_zero,
                              .to_ticks = true,
                              .ticks = 4});
  double widest = 0;
  for (const AxisTick& tick : y_axis_->ticks())
    widest = std::max(widest, text_width(tick.label, kTextSize));
  left_ = kMargin + widest + 8;
}

std::string Picture::description() const {
  std::string text = options_.description;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const std::vector<ChartPoint>& points = points_[i];
    if (!text.empty()) text += ' ';
    Extent y;
    double first = std::numeric_limits<double>::quiet_NaN(), last = first;
    for (const ChartPoint& point : points) {
      if (std::isnan(point.y)) continue;
      if (y.empty()) first = point.y;
      last = point.y;
      y.add(point.y);
    }
    text += fmt::format("{}: {} points", series_[i].name, points.size());
    if (!y.empty())
      text += fmt::format(", first {}, last {}, smallest {}, largest {}", label(first), label(last),
                          label(y.low), label(y.high));
    text += '.';
  }
  return text;
}

std::string Picture::head() const {
  const std::string id = escaped(options_.id);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"tc-chart\" viewBox=\"0 0 {0} {1}\" "
             "width=\"{0}\" height=\"{1}\" style=\"max-width:100%;height:auto\" role=\"img\" "
             "aria-labelledby=\"{2}-title {2}-description\">\n",
             options_.width, options_.height, id) +
         fmt::format(
             "<title id=\"{0}-title\">{1}</title>\n<desc id=\"{0}-description\">{2}</desc>\n", id,
             escaped(options_.title), escaped(description())) +
         fmt::format("<style>{}</style>\n", chart_css()) +
         fmt::format("<rect class=\"tc-ground\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n",
                     options_.width, options_.height) +
         text_at(kMargin, kTitleLine, "tc-title", "start",
                 shortened(options_.title, static_cast<std::size_t>((options_.width - 2 * kMargin) /
                                                                    (0.62 * kTitleSize)))) +
         text_at(kMargin, kSecondLine, "tc-text", "start", options_.y_label);
}

// Beside the y label if there is room, else in rows below it, which move the plot down.
std::string Picture::legend() {
  if (series_.size() < 2) return {};
  const auto width_of = [](const std::string& name) {
    return kSwatch + 6 + text_width(name, kTextSize) + 14;
  };
  std::vector<std::string> names;
  double total = 0;
  for (const ChartSeries& one : series_) {
    names.push_back(shortened(one.name, kLongestName));
    total += width_of(names.back());
  }
  const double after_label = kMargin + text_width(options_.y_label, kTextSize) + 24;
  double x = right_ - total, y = kSecondLine;
  if (x < after_label) {
    x = kMargin;
    y += kLegendRow;
  }
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (x > kMargin && x + width_of(names[i]) > options_.width - kMargin) {
      x = kMargin;
      y += kLegendRow;
    }
    const std::size_t colour = i % kChartColours;
    out += line_at(fmt::format("tc-line tc-l{}", colour), x, y - 4, x + kSwatch, y - 4);
    if (series_[i].style == SeriesStyle::kMarkers)
      out += fmt::format("<circle class=\"tc-dot tc-d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n",
                         colour, x + kSwatch / 2, y - 4);
    out += text_at(x + kSwatch + 6, y, "tc-text", "start", names[i]);
    x += width_of(names[i]);
  }
  top_ = y + kPlotGap;
  return out;
}

std::string Picture::axes() const {
  std::string out = line_at("tc-axis", left_, bottom_, right_, bottom_);
  if (empty_) return out;
  for (const AxisTick& tick : y_axis_->ticks()) {
    const double y = y_of(tick.value);
    out += line_at("tc-grid", left_, y, right_, y);
    out += text_at(left_ - 8, y + 4, "tc-text tc-y", "end", tick.label);
  }
  for (const AxisTick& tick : x_axis_->ticks()) {
    const double x = x_of(tick.value);
    out += line_at("tc-axis", x, bottom_, x, bottom_ + 4);
    out += text_at(x, bottom_ + 17, "tc-text tc-x", "middle", tick.label);
  }
  return out;
}

// The line below the axis: the smoothing, the meaning of x, values that could not be drawn.
std::string Picture::notes() const {
  const double y = options_.height - 10;
  std::string out = text_at((left_ + right_) / 2, y, "tc-text", "middle", options_.x_label);
  double window = 0;
  for (std::size_t i = 0; i < series_.size(); ++i)
    if (series_[i].style == SeriesStyle::kSmoothed)
      window = std::max(window, smoothing_window(points_[i].size()));
  if (window > 0)
    out +=
        text_at(kMargin, y, "tc-note", "start",
                fmt::format("bold: smoothed over some {} points", plain_label(std::round(window))));
  if (bad_ > 0)
    out += text_at(right_, y, "tc-bad-text", "end",
                   fmt::format("\xC3\x97 {} value{} not {}", bad_, bad_ == 1 ? "" : "s",
                               log_scale_ ? "finite or not above 0" : "finite"));
  if (empty_)
    out +=
        text_at((left_ + right_) / 2, (top_ + bottom_) / 2, "tc-text", "middle", "no values yet");
  return out;
}

std::string Picture::lines(const std::vector<ChartPoint>& points, const std::string& kind,
                           std::size_t colour) const {
  const auto columns = static_cast<int>(right_ - left_);
  std::string out;
  for (const auto& line : decimated(points, x_axis_->low(), x_axis_->high(), columns).lines) {
    if (line.size() == 1) {
      out += fmt::format("<circle class=\"tc-dot tc-d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n",
                         colour, x_of(line[0].x), y_of(line[0].y));
      continue;
    }
    out += fmt::format("<polyline class=\"{} tc-l{}\" points=\"", kind, colour);
    for (const ChartPoint& point : line)
      out += fmt::format("{:.1f},{:.1f} ", x_of(point.x), y_of(point.y));
    out.back() = '"';
    out += "/>\n";
  }
  return out;
}

std::string Picture::curve(std::size_t index) const {
  const std::vector<ChartPoint>& points = points_[index];
  const std::size_t colour = index % kChartColours;
  const double window =
      series_[index].style == SeriesStyle::kSmoothed ? smoothing_window(points.size()) : 0;
  if (window > 0)
    return lines(points, "tc-faint", colour) + lines(smoothed(points, window), "tc-line", colour);
  std::string out = lines(points, "tc-line", colour);
  if (series_[index].style != SeriesStyle::kMarkers) return out;
  for (const auto& line : decimated(points, x_axis_->low(), x_axis_->high(), 200).lines)
    for (const ChartPoint& point : line)
      out += fmt::format("<circle class=\"tc-dot tc-d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>\n",
                         colour, x_of(point.x), y_of(point.y));
  return out;
}

std::string Picture::crosses() const {
  std::string out;
  const double y = top_ + 4;
  for (const auto& points : points_)
    for (const ChartPoint& gap : decimated(points, x_axis_->low(), x_axis_->high(), 200).gaps)
      out += fmt::format("M{0:.1f} {2:.1f}L{1:.1f} {3:.1f}M{0:.1f} {3:.1f}L{1:.1f} {2:.1f}",
                         x_of(gap.x) - 3, x_of(gap.x) + 3, y - 3, y + 3);
  return out.empty() ? out : fmt::format("<path class=\"tc-bad\" d=\"{}\"/>\n", out);
}

std::string Picture::curves() const {
  std::string out = "<g class=\"tc-curves\">\n";
  for (std::size_t i = 0; i < series_.size(); ++i) out += curve(i);
  return out + crosses() + "</g>\n";
}

std::string Picture::svg() {
  const std::string names = legend();  // first, because it determines where the plot begins
  return head() + names + axes() + curves() + notes() + "</svg>\n";
}

}  // namespace

std::string line_chart(const std::vector<ChartSeries>& series, const ChartOptions& options) {
  return Picture(series, options).svg();
}

}  // namespace tessera::models::watch
