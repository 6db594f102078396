#include "tessera/models/runs/config_file.h"

#include <fmt/format.h>

#include "tessera/models/data/utf8.h"
#include "tessera/models/runs/option_error.h"
#include "tessera/models/runs/words.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tensor/nearest_name.h"

namespace tessera::models::runs {
namespace {

// The keys that are not options.
constexpr const char* kModelKey = "model";
constexpr const char* kVersionKey = "tessera";
constexpr const char* kIsaKey = "instruction_set";

// The option that a key names.
const Option& option_of(const std::string& path, const std::string& key, const std::string& model,
                        const OptionTable& table) {
  std::vector<std::string> keys;
  for (const Option& option : table.options()) {
    if (!option.in_config) continue;
    if (option.key() == key) return option;
    keys.push_back(option.key());
  }
  const std::string near = did_you_mean(key, keys);
  throw OptionError(
      fmt::format("{} has the unknown key \"{}\"{}", path, key,
                  near.empty() ? fmt::format("; see tessera train {} --help", model) : near));
}

// A list may also be written as it is typed.
bool fits(JsonKind value, JsonKind option) {
  return value == option || (option == JsonKind::kList && value == JsonKind::kText);
}

}  // namespace

ConfigHead read_config_head(const std::string& path) {
  ConfigHead head;
  for (const auto& [key, value] : read_json_file(path)) {
    const std::string text = value.kind == JsonKind::kText ? value.word : "";
    if (key == kModelKey) head.model = text;
    if (key == kVersionKey) head.version = text;
  }
  return head;
}

std::map<std::string, std::string> read_config(const std::string& path, const std::string& model,
                                               const OptionTable& table) {
  std::map<std::string, std::string> words;
  for (const auto& [key, value] : read_json_file(path)) {
    const bool is_ours = value.kind == JsonKind::kText && value.word == model;
    if (key == kModelKey && !is_ours)
      throw OptionError(fmt::format("{} is for the model {}, not \"{}\"", path, value.json, model));
    if (key == kModelKey || key == kVersionKey || key == kIsaKey) continue;
    const Option& option = option_of(path, key, model, table);
    if (!fits(value.kind, option.kind))
      throw OptionError(fmt::format("{}: \"{}\" cannot be {}", path, key, value.json));
    if (const std::string problem = option.problem(value.word); !problem.empty())
      throw OptionError(fmt::format("{}: --{}: {}", path, option.name, problem));
    words[option.name] = value.word;
  }
  for (const auto& [name, word] : words) {
    const Option& option = *table.find(name);
    if (words.contains(option.excludes))
      throw OptionError(fmt::format("{} has both \"{}\" and \"{}\"; leave one out", path,
                                    option.key(), table.find(option.excludes)->key()));
  }
  return words;
}

// Paths are not UTF-8 in a current folder whose name is not; JSON has no other text.
void check_text(const Option& option, const JsonValue& value) {
  const auto* const text = std::get_if<std::string>(&value);
  if (text == nullptr) return;
  const std::size_t at = data::find_invalid_utf8(*text);
  if (at != std::string::npos)
    throw OptionError(fmt::format(
        "--{}: byte {} of {} is not UTF-8, and a configuration has no other text; choose a path "
        "that is",
        option.name, at, *text));
}

std::string config_text(const std::string& model, const OptionTable& table) {
  JsonMembers members = {
      {kVersionKey, kVersion}, {kIsaKey, cpu_isa_name(cpu_isa())}, {kModelKey, model}};
  for (const Option& option : table.options()) {
    JsonValue value = option.get();
    const bool has_value = !std::holds_alternative<std::monostate>(value);
    if (!option.in_config || !has_value) continue;
    check_text(option, value);
    members.emplace_back(option.key(), std::move(value));
  }
  return json_text(members);
}

}  // namespace tessera::models::runs
