#include "tessera/tools/program/options/option_checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tessera/tools/program/options/words.h"

namespace tessera::tools {
namespace {

// Only digits, and in the range. The conversion alone would clamp a number that is too large and
// read 010 as octal.
bool is_whole(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool plain = text == "0" || !text.starts_with('0');
  return plain && error == std::errc() && end == text.data() + text.size() && value >= least &&
         value <= most;
}

}  // namespace

OptionCheck number_check(std::string what, bool (*fits)(double)) {
  return [what = std::move(what), fits](const std::string& text) {
    const std::optional<double> value = number_of(text);
    const bool good = value && std::isfinite(*value) && fits(*value);
    return good ? std::string() : fmt::format("{} is not {}", text, what);
  };
}

OptionCheck whole_number(std::uint64_t least, std::uint64_t most) {
  return [least, most](const std::string& text) {
    return is_whole(text, least, most)
               ? std::string()
               : fmt::format("{} is not a whole number from {} to {}", text, least, most);
  };
}

std::optional<double> number_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const long double value = std::strtold(text.c_str(), &end);
  if (end != text.c_str() + text.size()) return std::nullopt;
  return static_cast<double>(value);
}

OptionCheck whole_numbers(std::uint64_t least, std::uint64_t most) {
  return [least, most](const std::string& text) {
    for (const std::string& part : parts_of(text))
      if (!is_whole(part, least, most))
        return fmt::format("{} is not a list of whole numbers from {} to {}, as 512,256", text,
                           least, most);
    return std::string();
  };
}

OptionCheck above_zero() {
  return number_check("a number above 0", [](double value) { return value > 0; });
}
OptionCheck fraction() {
  return number_check("a number in [0, 1)", [](double value) { return value >= 0 && value < 1; });
}
OptionCheck not_negative() {
  return number_check("a number of at least 0", [](double value) { return value >= 0; });
}

}  // namespace tessera::tools
