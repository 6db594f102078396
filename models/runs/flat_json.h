#pragma once

/// Flat JSON objects with texts, numbers, flags and lists of numbers: the files of --config,
/// config.json and summary.json.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::models::runs {

/// A value to be written; monostate is null.
using JsonValue = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double,
                               std::string, std::vector<std::int64_t>>;
/// The members of an object, in the order in which they are written.
using JsonMembers = std::vector<std::pair<std::string, JsonValue>>;

/// How to write a text that is not valid UTF-8.
enum class InvalidUtf8 : std::uint8_t { kRefuse, kReplace };

/// One line per member, without a final newline. With kRefuse it throws nlohmann's exception.
std::string json_text(const JsonMembers& members, InvalidUtf8 invalid = InvalidUtf8::kRefuse);

/// The kind of a value in a file. A list has at least one number.
enum class JsonKind : std::uint8_t { kText, kNumber, kFlag, kList, kOther };

/// A value that was read.
struct JsonWord {
  JsonKind kind = JsonKind::kOther;
  std::string word;  ///< as it would be typed: a text without quotes, "0.5", "true", "512,256"
  std::string json;  ///< as it would be written, for messages
};

/// The members of the object in a file, in file order. Throws OptionError naming the file if it
/// cannot be read, is not a JSON object, or has a key twice.
std::vector<std::pair<std::string, JsonWord>> read_json_file(const std::string& path);

}  // namespace tessera::models::runs
