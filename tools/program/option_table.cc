#include "tessera/tools/program/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "tessera/models/data/utf8.h"
#include "tessera/tools/program/nearest_name.h"
#include "tessera/tools/program/option_checks.h"

namespace tessera::tools {
namespace {

// A validator's answer: nothing, or what is wrong.
std::function<std::string(const std::string&)> problem_of(const CLI::Validator& check) {
  return [check](const std::string& word) { return check(word); };
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  if (value.is_number_float()) return fmt::format("{:g}", value.get<double>());
  if (!value.is_array()) return value.dump();
  std::vector<std::string> parts;
  for (const Json& part : value) parts.push_back(text_of(part));
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace

std::string Option::key() const {
  std::string key = name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string Option::default_text() const {
  const Json value = get();
  const std::string text = value.is_null() ? unset : text_of(value);
  return of_preset ? "the preset's: " + text : text;
}

Option& OptionTable::add(Option option) {
  option.group = group_;
  options_.push_back(std::move(option));
  return options_.back();
}

Option& OptionTable::text(std::string name, std::string& target, std::string meaning) {
  Option& option =
      add({.name = std::move(name), .group = {}, .value = "TEXT", .meaning = std::move(meaning)});
  option.problem = [](const std::string& word) {
    const std::size_t at = models::data::find_invalid_utf8(word);
    return at == std::string::npos ? std::string() : fmt::format("byte {} is not UTF-8", at);
  };
  option.set = [&target](const std::string& word) { target = word; };
  option.get = [&target] { return target.empty() ? Json() : Json(target); };
  return option;
}

Option& OptionTable::path(std::string name, std::string& target, std::string meaning) {
  Option& option = text(std::move(name), target, std::move(meaning));
  option.value = "PATH";
  option.set = [&target](const std::string& word) { target = absolute_path(word); };
  return option;
}

Option& OptionTable::choice(std::string name, std::string& target, std::vector<std::string> names,
                            std::string meaning) {
  Option& option = text(std::move(name), target, std::move(meaning));
  option.value = fmt::format("{}", fmt::join(names, "|"));
  option.problem = [names = std::move(names)](const std::string& word) {
    if (std::find(names.begin(), names.end(), word) != names.end()) return std::string();
    return fmt::format("{} is none of {}{}", word, fmt::join(names, ", "),
                       did_you_mean(word, names));
  };
  return option;
}

Option& OptionTable::number(std::string name, double& target, CLI::Validator check,
                            std::string meaning) {
  Option& option =
      add({.name = std::move(name), .group = {}, .value = "X", .meaning = std::move(meaning)});
  option.kind = OptionKind::kNumber;
  option.problem = problem_of(check);
  option.set = [&target](const std::string& word) { CLI::detail::lexical_cast(word, target); };
  option.get = [&target] { return Json(target); };
  return option;
}

Option& OptionTable::flag(std::string name, bool& target, std::string meaning) {
  Option& option =
      add({.name = std::move(name), .group = {}, .value = "", .meaning = std::move(meaning)});
  option.kind = OptionKind::kFlag;
  option.problem = [](const std::string& word) {
    return word == "true" || word == "false" ? "" : word + " is neither true nor false";
  };
  option.set = [&target](const std::string& word) { target = word == "true"; };
  option.get = [&target] { return Json(target); };
  return option;
}

Option& OptionTable::list(std::string name, std::vector<std::int64_t>& target, WholeRange range,
                          std::string meaning) {
  Option& option =
      add({.name = std::move(name), .group = {}, .value = "N,N", .meaning = std::move(meaning)});
  option.kind = OptionKind::kList;
  option.problem = problem_of(whole_numbers(range.least, range.most));
  option.set = [&target](const std::string& word) {
    target.clear();
    for (const std::string& part : parts_of(word)) target.push_back(std::stoll(part));
  };
  option.get = [&target] { return Json(target); };
  return option;
}

Option& OptionTable::whole_option(std::string name, WholeRange range, std::string meaning) {
  Option& option =
      add({.name = std::move(name), .group = {}, .value = "N", .meaning = std::move(meaning)});
  option.kind = OptionKind::kNumber;
  option.problem = problem_of(whole_number(range.least, range.most));
  return option;
}

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

void OptionTable::add_to(CLI::App& command) {
  for (const Option& option : options_) {
    const std::string name = option.name;
    CLI::Option* added = nullptr;
    if (option.value.empty()) {
      added = command.add_flag_function(
          "--" + name,
          [this, name](std::int64_t count) { typed_[name] = count > 0 ? "true" : "false"; },
          option.meaning);
    } else {
      added = command.add_option_function<std::string>(
          "--" + name, [this, name](const std::string& word) { typed_[name] = word; },
          option.meaning);
      added->check(
          CLI::Validator([check = option.problem](std::string& word) { return check(word); }, ""));
      added->option_text(option.value)->take_last();  // the last of several counts
    }
    added->group(option.group)->default_str(option.default_text());
    if (CLI::Option* other = command.get_option_no_throw("--" + option.excludes))
      added->excludes(other);
  }
}

std::optional<std::string> OptionTable::typed(const std::string& name) const {
  const auto found = typed_.find(name);
  return found == typed_.end() ? std::nullopt : std::optional(found->second);
}

void OptionTable::apply_typed() {
  for (const Option& option : options_)
    if (const auto word = typed(option.name)) option.set(*word);
}

Json OptionTable::to_json() const {
  Json json = Json::object();
  for (const Option& option : options_)
    if (const Json value = option.get(); option.in_config && !value.is_null())
      json[option.key()] = value;
  return json;
}

std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  const char* home = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::filesystem::path base =
      home != nullptr ? std::filesystem::path(home) : std::filesystem::current_path();
  return (base / path).lexically_normal().string();
}

}  // namespace tessera::tools
