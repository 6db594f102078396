#include "tessera/nn/state/state_value_text.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <variant>

#include <fmt/format.h>

namespace tessera::nn {
namespace {

constexpr std::string_view kNan = "nan:";

// A NaN has bits that no decimal shows; fmt writes all else so that it reads back exactly.
std::string number_text(double value) {
  return std::isnan(value) ? fmt::format("{}{:016x}", kNan, std::bit_cast<std::uint64_t>(value))
                           : fmt::format("{}", value);
}

// All of `text`, or nothing.
template <class T, class... Format>
std::optional<T> parse(std::string_view text, Format... format) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, format...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<StateValue> parse_number(std::string_view text) {
  if (text.starts_with(kNan)) {
    const auto bits = parse<std::uint64_t>(text.substr(kNan.size()), 16);
    if (!bits || !std::isnan(std::bit_cast<double>(*bits))) return std::nullopt;
    return std::bit_cast<double>(*bits);
  }
  const auto number = parse<double>(text);
  if (!number || std::isnan(*number)) return std::nullopt;
  return *number;
}

}  // namespace

std::string state_value_text(const StateValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<double>(&value)) return number_text(*number);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  return std::get<std::string>(value);
}

std::optional<StateValue> parse_state_value(std::string_view kind, std::string_view text) {
  if (kind == "bool" && (text == "true" || text == "false")) return text == "true";
  if (kind == "integer") {
    const auto whole = parse<std::int64_t>(text);
    if (whole) return *whole;
  }
  if (kind == "number") return parse_number(text);
  if (kind == "text") return std::string(text);
  return std::nullopt;
}

}  // namespace tessera::nn
