#include "tessera/models/runs/flat_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/models/runs/option_error.h"

namespace tessera::models::runs {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepest = 8;  // errors name keys nested up to here; deeper nesting is not read

// "512,256" from an array of numbers.
std::string list_word(const Json& array) {
  std::string list;
  for (const Json& entry : array) list += (list.empty() ? "" : ",") + entry.dump();
  return list;
}

bool is_list(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const Json& each) { return each.is_number(); });
}

JsonWord word_of(const Json& value) {
  std::string json = value.dump();
  if (value.is_string()) return {JsonKind::kText, value.get<std::string>(), json};
  if (value.is_number()) return {JsonKind::kNumber, json, json};
  if (value.is_boolean()) return {JsonKind::kFlag, json, json};
  if (is_list(value)) return {JsonKind::kList, list_word(value), json};
  return {JsonKind::kOther, "", json};
}

Json parse_object(const std::string& path, std::istream& file) {
  // Of two values with one key, one would be lost.
  std::set<std::string> keys;
  const Json::parser_callback_t see = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth > kDeepest)
      throw OptionError(
          fmt::format("{} has values inside one another, more than {} deep; options "
                      "are numbers, texts and lists of numbers",
                      path, kDeepest));
    const bool is_key = depth == 1 && event == Json::parse_event_t::key;
    if (is_key && !keys.insert(parsed.get<std::string>()).second)
      throw OptionError(fmt::format("{} has the key {} twice; leave one out", path, parsed.dump()));
    return true;
  };
  try {
    Json json = Json::parse(file, see);
    if (json.is_object()) return json;
  } catch (const Json::parse_error& error) {
    throw OptionError(fmt::format("{} is not JSON from byte {} on; correct it", path, error.byte));
  } catch (const Json::exception&) {
    throw OptionError(
        fmt::format("{} has a number that is too large to be read; correct it", path));
  }
  throw OptionError(
      fmt::format("{} is not a JSON object; expected {{\"option\": value, ...}}", path));
}

}  // namespace

std::string json_text(const JsonMembers& members, InvalidUtf8 invalid) {
  Json json = Json::object();
  for (const auto& [key, value] : members)
    json[key] = std::visit(
        []<class T>(const T& each) {
          if constexpr (std::is_same_v<T, std::monostate>)
            return Json();
          else
            return Json(each);
        },
        value);
  return json.dump(2, ' ', false,
                   invalid == InvalidUtf8::kReplace ? Json::error_handler_t::replace
                                                    : Json::error_handler_t::strict);
}

std::vector<std::pair<std::string, JsonWord>> read_json_file(const std::string& path) {
  // Every rank process reads the file again, so a pipe or a similar source is an error.
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    throw OptionError(fmt::format("{} is not a regular file; one is needed", path));
  std::ifstream file(path);
  if (!file) throw OptionError(fmt::format("{} cannot be read; check the path", path));
  std::vector<std::pair<std::string, JsonWord>> members;
  const Json json = parse_object(path, file);  // items() is a view of it
  for (const auto& [key, value] : json.items()) members.emplace_back(key, word_of(value));
  return members;
}

}  // namespace tessera::models::runs
