#pragma once

/// Reads JSON objects that a run wrote. Only json_object.cc includes the JSON library, which takes
/// seconds to compile.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

/// An object with members by name. Its functions throw DataError with the JSON library's reason
/// only: the caller knows which file the text is from. Copies share one value.
class JsonObject {
 public:
  /// Throws for a text that is not JSON.
  explicit JsonObject(const std::string& text);

  /// False also for JSON that is not an object. The other functions throw then, and if `key` is
  /// missing or its value has another type.
  bool contains(const std::string& key) const;
  JsonObject object(const std::string& key) const;
  std::int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;  ///< NaN for null, which means "not finite"
  bool boolean(const std::string& key) const;

 private:
  explicit JsonObject(std::shared_ptr<const nlohmann::ordered_json> value);
  std::shared_ptr<const nlohmann::ordered_json> value_;
};

/// A member of an object as text for a page.
struct JsonRow {
  std::string name;   ///< "optimizer.lr" for a nested object
  std::string value;  ///< a text without quotes; otherwise JSON
};

/// The members of the object in order; nothing if the text is not a JSON object.
std::optional<std::vector<JsonRow>> json_rows(const std::string& text);

}  // namespace tessera::tools
