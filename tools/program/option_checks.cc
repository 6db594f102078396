#include "tessera/tools/program/option_checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

namespace tessera::tools {
namespace {

// Digits and nothing else, in the range. The conversion behind it would take the largest number it
// has for one that is too long, and read 010 as octal.
bool is_whole(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool plain = text == "0" || !text.starts_with('0');
  return plain && error == std::errc() && end == text.data() + text.size() && value >= least &&
         value <= most;
}

}  // namespace

CLI::Validator number_check(std::string what, std::function<bool(double)> fits) {
  return CLI::Validator(
      [what, fits = std::move(fits)](std::string& text) {
        double value = 0;
        const bool good =
            CLI::detail::lexical_cast(text, value) && std::isfinite(value) && fits(value);
        return good ? std::string() : fmt::format("{} is not {}", text, what);
      },
      "");
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) {
        return is_whole(text, least, most)
                   ? std::string()
                   : fmt::format("{} is not a whole number from {} to {}", text, least, most);
      },
      fmt::format("in [{} - {}]", least, most));
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back().push_back(c);
  }
  return parts;
}

CLI::Validator whole_numbers(std::uint64_t least, std::uint64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) {
        for (const std::string& part : parts_of(text))
          if (!is_whole(part, least, most))
            return fmt::format("{} is not a list of whole numbers from {} to {}, as 512,256", text,
                               least, most);
        return std::string();
      },
      "");
}

CLI::Validator above_zero() {
  return number_check("a number above 0", [](double value) { return value > 0; });
}
CLI::Validator fraction() {
  return number_check("a number in [0, 1)", [](double value) { return value >= 0 && value < 1; });
}
CLI::Validator not_negative() {
  return number_check("a number of at least 0", [](double value) { return value >= 0; });
}

}  // namespace tessera::tools
