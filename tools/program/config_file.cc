#include "tessera/tools/program/config_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "tessera/tensor/kernels/table.h"
#include "tessera/tools/program/cannot_start.h"
#include "tessera/tools/program/nearest_name.h"

namespace tessera::tools {
namespace {

// "512,256" of an array of numbers.
std::optional<std::string> list_of(const Json& value) {
  if (!value.is_array() || value.empty()) return std::nullopt;
  std::string list;
  for (const Json& entry : value) {
    if (!entry.is_number()) return std::nullopt;
    list += (list.empty() ? "" : ",") + entry.dump();
  }
  return list;
}

// A JSON value as the word that the command line would have.
std::optional<std::string> word_of(const Option& option, const Json& value) {
  switch (option.kind) {
    case OptionKind::kText:
      return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
    case OptionKind::kNumber:
      return value.is_number() ? std::optional(value.dump()) : std::nullopt;
    case OptionKind::kFlag:
      return value.is_boolean() ? std::optional(value.dump()) : std::nullopt;
    case OptionKind::kList:
      return value.is_string() ? std::optional(value.get<std::string>()) : list_of(value);
  }
  return std::nullopt;
}

// The option of a key.
const Option& option_of(const std::string& path, const std::string& key, const std::string& model,
                        const OptionTable& table) {
  std::vector<std::string> keys;
  for (const Option& option : table.options()) {
    if (!option.in_config) continue;
    if (option.key() == key) return option;
    keys.push_back(option.key());
  }
  const std::string near = did_you_mean(key, keys);
  throw CannotStart(
      fmt::format("{} has the unknown key \"{}\"{}", path, key,
                  near.empty() ? fmt::format("; see tessera train {} --help", model) : near));
}

}  // namespace

Json read_json_file(const std::string& path) {
  // Every rank process reads it again: what can be read only once, such as a pipe, will not do.
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    throw CannotStart(fmt::format("{} is not a regular file; one is needed", path));
  std::ifstream file(path);
  if (!file) throw CannotStart(fmt::format("{} cannot be read; check the path", path));
  // Of a key that stands twice one value would be lost.
  std::set<std::string> keys;
  const Json::parser_callback_t see = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const bool is_key = depth == 1 && event == Json::parse_event_t::key;
    if (is_key && !keys.insert(parsed.get<std::string>()).second)
      throw CannotStart(fmt::format("{} has the key {} twice; leave one out", path, parsed.dump()));
    return true;
  };
  try {
    Json json = Json::parse(file, see);
    if (json.is_object()) return json;
  } catch (const Json::parse_error& error) {
    throw CannotStart(fmt::format("{} is not JSON from byte {} on; correct it", path, error.byte));
  } catch (const Json::exception&) {
    throw CannotStart(
        fmt::format("{} has a number that is too large to be read; correct it", path));
  }
  throw CannotStart(
      fmt::format("{} is not a JSON object; expected {{\"option\": value, ...}}", path));
}

std::map<std::string, std::string> read_config(const std::string& path, const std::string& model,
                                               const OptionTable& table) {
  std::map<std::string, std::string> words;
  const Json config = read_json_file(path);
  for (const auto& [key, value] : config.items()) {
    if (key == kModelKey && value != model)
      throw CannotStart(
          fmt::format("{} is for the model {}, not \"{}\"", path, value.dump(), model));
    if (key == kModelKey || key == kVersionKey || key == kIsaKey) continue;
    const Option& option = option_of(path, key, model, table);
    const auto word = word_of(option, value);
    if (!word) throw CannotStart(fmt::format("{}: \"{}\" cannot be {}", path, key, value.dump()));
    if (const std::string problem = option.problem(*word); !problem.empty())
      throw CannotStart(fmt::format("{}: --{}: {}", path, option.name, problem));
    words[option.name] = *word;
  }
  for (const auto& [name, word] : words) {
    const Option& option = *table.find(name);
    if (words.contains(option.excludes))
      throw CannotStart(fmt::format("{} has both \"{}\" and \"{}\"; leave one out", path,
                                    option.key(), table.find(option.excludes)->key()));
  }
  return words;
}

Json config_head(const std::string& model) {
  return {{kVersionKey, kVersion}, {kIsaKey, cpu_isa_name(cpu_isa())}, {kModelKey, model}};
}

}  // namespace tessera::tools
