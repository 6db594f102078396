#include "tessera/models/watch/metrics_reader.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/tensor/check.h"
#include "tessera/tensor/error.h"

namespace tessera::models::watch {
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

namespace {

constexpr const char* kWhere = "metrics";

// One line and its position.
struct Line {
  const std::string& path;
  std::int64_t number;
};

double number_or_zero(const JsonObject& object, const char* key) {
  return object.contains(key) ? object.number(key) : 0;
}

std::optional<double> optional_number(const JsonObject& object, const char* key) {
  return object.contains(key) ? std::optional(object.number(key)) : std::nullopt;
}

std::int64_t whole_or_zero(const JsonObject& object, const char* key) {
  return object.contains(key) ? object.integer(key) : 0;
}

StepMetrics step_of(const JsonObject& object) {
  return {.step = object.integer("step"),
          .loss = object.number("loss"),
          .auxiliary_loss = optional_number(object, "auxiliary_loss"),
          .grad_norm = number_or_zero(object, "grad_norm"),
          .learning_rate = number_or_zero(object, "lr"),
          .samples = whole_or_zero(object, "samples"),
          .tokens = whole_or_zero(object, "tokens"),
          .step_ms = number_or_zero(object, "step_ms"),
          .peak_bytes = whole_or_zero(object, "peak_bytes"),
          .gathered_peak_bytes = whole_or_zero(object, "gathered_peak_bytes"),
          .comm_bytes = whole_or_zero(object, "comm_bytes"),
          .collectives = whole_or_zero(object, "collectives"),
          .loss_scale = optional_number(object, "loss_scale"),
          .skipped = object.contains("skipped") && object.boolean("skipped")};
}

EvalMetrics eval_of(const JsonObject& object) {
  return {.step = object.integer("step"),
          .loss = object.number("loss"),
          .accuracy = optional_number(object, "accuracy"),
          .bits_per_byte = optional_number(object, "bits_per_byte")};
}

// Steps of a repeated run replace earlier ones.
template <class Metrics>
void append(std::vector<Metrics>& list, Metrics metrics) {
  while (!list.empty() && list.back().step >= metrics.step) list.pop_back();
  list.push_back(std::move(metrics));
}

[[noreturn]] void throw_no_metrics(const Line& line, const DataError& error) {
  throw_error<DataError>(kWhere, "{} line {} is no line of metrics: {}; remove it", line.path,
                         line.number, error.what());
}

// Calls read(text) for each line with something in it. Returns true if the last one is half a line that
// it does not understand.
template <class Read>
bool each_line(const std::string& path, const Read& read) {
  std::ifstream file(path, std::ios::binary);
  TESSERA_CHECK_AS(Error, file.is_open(), kWhere, "{} cannot be read: {}; name the folder of a run",
                   path, std::strerror(errno));
  bool cut = false;
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    if (text.empty()) continue;
    try {
      read(text);
    } catch (const DataError& error) {
      if (!file.eof()) throw_no_metrics({.path = path, .number = number}, error);
      cut = true;
    }
  }
  TESSERA_CHECK_AS(Error, !file.bad(), kWhere, "{} cannot be read: {}; look after the disk", path,
                   std::strerror(errno));
  return cut;
}

}  // namespace

RunMetrics read_metrics(const std::string& path) {
  RunMetrics run;
  run.cut = each_line(path, [&](const std::string& text) {
    const JsonObject object(text);
    if (object.contains("eval"))
      append(run.evals, eval_of(object.object("eval")));
    else
      append(run.steps, step_of(object));
  });
  return run;
}

std::string metrics_until(const std::string& path, const MetricsEnd& end) {
  std::string kept;
  each_line(path, [&](const std::string& text) {
    const JsonObject object(text);
    const bool stays = object.contains("eval")
                           ? object.object("eval").integer("step") <= end.eval_step
                           : object.integer("step") <= end.step;
    if (stays) kept += text + "\n";
  });
  return kept;
}

}  // namespace tessera::models::watch
