#pragma once

/// JSON objects with nothing in them but texts, numbers, flags and lists of numbers: what --config
/// names, and config.json and summary.json of a run.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::tools {

/// A value to be written; the first is null.
using JsonValue = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double,
                               std::string, std::vector<std::int64_t>>;
/// In the order in which they are written.
using JsonMembers = std::vector<std::pair<std::string, JsonValue>>;

/// What becomes of a text with bytes that are no UTF-8.
enum class InvalidUtf8 : std::uint8_t { kRefuse, kReplace };

/// A line for each member, without an end of line behind the last. With kRefuse it throws what
/// nlohmann throws.
std::string json_text(const JsonMembers& members, InvalidUtf8 invalid = InvalidUtf8::kRefuse);

/// What a value is in a file. A list has numbers, one at least.
enum class JsonKind : std::uint8_t { kText, kNumber, kFlag, kList, kOther };

/// A value that was read.
struct JsonWord {
  JsonKind kind = JsonKind::kOther;
  std::string word;  ///< as it would be typed: a text without quotes, "0.5", "true", "512,256"
  std::string json;  ///< as it would be written, for messages
};

/// The members of the object in a file, in its order. Throws CannotStart naming the file when it
/// cannot be read, is no JSON object or has a key twice.
std::vector<std::pair<std::string, JsonWord>> read_json_file(const std::string& path);

}  // namespace tessera::tools
