#include "tessera/tools/program/options/texts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <sstream>
#include <vector>

#include <fmt/format.h>

namespace tessera::tools {

namespace {

// With at least three digits, and a unit from the list for each factor of 1000.
std::string scaled(double value, std::span<const char* const> units) {
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  const std::string number =
      unit == 0 ? fmt::format("{:.0f}", value) : fmt::format("{:.1f}", value);
  return *units[unit] == 0 ? number : number + " " + units[unit];
}

}  // namespace

std::string with_commas(std::int64_t value) {
  const std::string digits = std::to_string(value);
  const std::size_t sign = value < 0 ? 1 : 0;
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string short_count(double value) {
  static constexpr const char* kUnits[] = {"", "k", "M", "B", "T"};
  return scaled(value, kUnits);
}

std::string short_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  return scaled(bytes, kUnits);
}

std::string short_time(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

namespace {

constexpr std::size_t kLeft = 30;
constexpr std::size_t kWidth = 100;

}  // namespace

std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

std::string paragraph(const std::string& text) {
  std::string lines;
  for (const std::string& line : wrapped(text, kWidth)) lines += line + "\n";
  return lines;
}

std::string two_columns(const std::string& left, const std::string& right) {
  std::string text = fmt::format("  {:<{}}", left, kLeft - 2);
  bool first = left.size() + 3 <= kLeft;
  if (!first) text += "\n";
  for (const std::string& line : wrapped(right, kWidth - kLeft)) {
    text += first ? line : fmt::format("{:{}}{}", "", kLeft, line);
    text += "\n";
    first = false;
  }
  return text;
}

}  // namespace tessera::tools
