#include "tessera/models/runs/option_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "tessera/models/data/utf8.h"
#include "tessera/models/runs/words.h"
#include "tessera/tensor/nearest_name.h"

namespace tessera::models::runs {
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

namespace {

struct ValueText {
  std::string operator()(std::monostate) const { return {}; }
  std::string operator()(bool value) const { return value ? "on" : "off"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(std::uint64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return fmt::format("{:g}", value); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const std::vector<std::int64_t>& value) const {
    std::vector<std::string> words;
    for (const std::int64_t each : value) words.push_back(std::to_string(each));
    return joined(words, ",");
  }
};

}  // namespace

std::string Option::key() const {
  std::string key = name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string Option::default_text() const {
  const JsonValue value = get();
  const bool has_value = !std::holds_alternative<std::monostate>(value);
  const std::string text = has_value ? std::visit(ValueText(), value) : unset;
  return of_preset ? "the preset's: " + text : text;
}

OptionTable::OptionTable() = default;
OptionTable::~OptionTable() = default;

Option& OptionTable::add(Option option) {
  option.group = group_;
  options_.push_back(std::move(option));
  return options_.back();
}

Option& OptionTable::add(std::string_view name, const char* value, std::string_view meaning) {
  return add(
      {.name = std::string(name), .group = {}, .value = value, .meaning = std::string(meaning)});
}

Option& OptionTable::text(std::string_view name, std::string& target, std::string_view meaning) {
  Option& option = add(name, "TEXT", meaning);
  option.problem = [](const std::string& word) {
    const std::size_t at = data::find_invalid_utf8(word);
    return at == std::string::npos ? std::string() : fmt::format("byte {} is not UTF-8", at);
  };
  option.set = [&target](const std::string& word) { target = word; };
  option.get = [&target] { return target.empty() ? JsonValue() : target; };
  return option;
}

Option& OptionTable::path(std::string_view name, std::string& target, std::string_view meaning) {
  Option& option = text(name, target, meaning);
  option.value = "PATH";
  option.set = [&target](const std::string& word) { target = absolute_path(word); };
  return option;
}

Option& OptionTable::choice(std::string_view name, std::string& target,
                            std::vector<std::string> names, std::string_view meaning) {
  Option& option = text(name, target, meaning);
  option.value = joined(names, "|");
  option.problem = [names = std::move(names)](const std::string& word) {
    if (std::find(names.begin(), names.end(), word) != names.end()) return std::string();
    return fmt::format("{} is none of {}{}", word, joined(names, ", "), did_you_mean(word, names));
  };
  return option;
}

Option& OptionTable::number(std::string_view name, double& target, OptionCheck check,
                            std::string_view meaning) {
  Option& option = add(name, "X", meaning);
  option.kind = JsonKind::kNumber;
  option.problem = std::move(check);
  option.set = [&target](const std::string& word) { target = *number_of(word); };
  option.get = [&target] { return target; };
  return option;
}

Option& OptionTable::flag(std::string_view name, bool& target, std::string_view meaning) {
  Option& option = add(name, "", meaning);
  option.kind = JsonKind::kFlag;
  option.problem = [](const std::string& word) {
    return word == "true" || word == "false" ? "" : word + " is neither true nor false";
  };
  option.set = [&target](const std::string& word) { target = word == "true"; };
  option.get = [&target] { return target; };
  return option;
}

Option& OptionTable::list(std::string_view name, std::vector<std::int64_t>& target,
                          WholeRange range, std::string_view meaning) {
  Option& option = add(name, "N,N", meaning);
  option.kind = JsonKind::kList;
  option.problem = whole_numbers(range.least, range.most);
  option.set = [&target](const std::string& word) {
    target.clear();
    for (const std::string& part : parts_of(word)) target.push_back(std::stoll(part));
  };
  option.get = [&target] { return target; };
  return option;
}

template <class Target>
Option& OptionTable::whole(std::string_view name, Target& target, WholeRange range,
                           std::string_view meaning) {
  Option& option = add(name, "N", meaning);
  option.kind = JsonKind::kNumber;
  option.problem = whole_number(range.least, range.most);
  if constexpr (requires { target.has_value(); }) {
    using Value = typename Target::value_type;
    option.set = [&target](const std::string& word) {
      target = static_cast<Value>(std::stoull(word));
    };
    option.get = [&target] { return target ? JsonValue(*target) : JsonValue(); };
  } else {
    option.set = [&target](const std::string& word) {
      target = static_cast<Target>(std::stoull(word));
    };
    option.get = [&target] { return JsonValue(target); };
  }
  return option;
}
template Option& OptionTable::whole(std::string_view, int&, WholeRange, std::string_view);
template Option& OptionTable::whole(std::string_view, std::int64_t&, WholeRange, std::string_view);
template Option& OptionTable::whole(std::string_view, std::uint64_t&, WholeRange, std::string_view);
template Option& OptionTable::whole(std::string_view, std::optional<std::int64_t>&, WholeRange,
                                    std::string_view);

const Option* OptionTable::find(const std::string& name) const {
  for (const Option& option : options_)
    if (option.name == name) return &option;
  return nullptr;
}

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> names;
  for (const Option& option : options_) names.push_back(option.name);
  return names;
}

std::optional<std::string> OptionTable::typed(const std::string& name) const {
  const auto found = typed_.find(name);
  return found == typed_.end() ? std::nullopt : std::optional(found->second);
}

void OptionTable::apply_typed() {
  for (const Option& option : options_)
    if (const auto word = typed(option.name)) option.set(*word);
}

std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  const char* home = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::filesystem::path base =
      home != nullptr ? std::filesystem::path(home) : std::filesystem::current_path();
  return (base / path).lexically_normal().string();
}

}  // namespace tessera::models::runs
