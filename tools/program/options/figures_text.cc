#include "tessera/tools/program/options/figures_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <span>

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

}  // namespace tessera::tools
