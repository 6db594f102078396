#pragma once

/// JSON objects that a run wrote, read back. Only json_object.cc compiles the JSON library, which
/// takes seconds.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

/// An object whose members are asked for by name. Its functions throw DataError with the JSON
/// library's reason alone: the caller knows where the text stands. Copies share one value.
class JsonObject {
 public:
  /// Throws for a text that is not JSON.
  explicit JsonObject(const std::string& text);

  /// False also for JSON that is not an object; the others throw then, and where `key` is missing
  /// or its value is of another kind.
  bool contains(const std::string& key) const;
  JsonObject object(const std::string& key) const;
  std::int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;  ///< NaN for null, which is a number not finite
  bool boolean(const std::string& key) const;

 private:
  explicit JsonObject(std::shared_ptr<const nlohmann::ordered_json> value);
  std::shared_ptr<const nlohmann::ordered_json> value_;
};

/// A member of an object as a page shows it.
struct JsonRow {
  std::string name;   ///< "optimizer.lr" for what lies in an object inside the object
  std::string value;  ///< a text without quotes; all else as JSON
};

/// The members of the object, in its order; nothing where the text is no JSON object.
std::optional<std::vector<JsonRow>> json_rows(const std::string& text);

}  // namespace tessera::tools
