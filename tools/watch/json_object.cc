#include "tessera/tools/watch/json_object.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/tensor/error.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

template <class Read>
auto reading(const Read& read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    throw DataError(error.what());
  }
}

void append_rows(const Json& object, const std::string& prefix, std::vector<JsonRow>& rows) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object() && !value.empty()) {
      append_rows(value, prefix + key + ".", rows);
    } else {
      rows.push_back({prefix + key, value.is_string() ? value.get<std::string>() : value.dump()});
    }
  }
}

}  // namespace

JsonObject::JsonObject(const std::string& text)
    : value_(reading([&] { return std::make_shared<const Json>(Json::parse(text)); })) {}

JsonObject::JsonObject(std::shared_ptr<const Json> value) : value_(std::move(value)) {}

bool JsonObject::contains(const std::string& key) const { return value_->contains(key); }

JsonObject JsonObject::object(const std::string& key) const {
  // Shares ownership of the complete value.
  return reading([&] { return JsonObject(std::shared_ptr<const Json>(value_, &value_->at(key))); });
}

std::int64_t JsonObject::integer(const std::string& key) const {
  return reading([&] { return value_->at(key).get<std::int64_t>(); });
}

double JsonObject::number(const std::string& key) const {
  return reading([&] {
    const Json& value = value_->at(key);
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  });
}

bool JsonObject::boolean(const std::string& key) const {
  return reading([&] { return value_->at(key).get<bool>(); });
}

std::optional<std::vector<JsonRow>> json_rows(const std::string& text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  std::vector<JsonRow> rows;
  append_rows(object, "", rows);
  return rows;
}

}  // namespace tessera::tools
