#include "tessera/tools/watch/metrics_reader.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "tessera/tensor/check.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::json;
using models::EvalMetrics;
using models::StepMetrics;

constexpr const char* kWhere = "metrics";

// One line, and where it stands.
struct Line {
  const std::string& path;
  std::int64_t number;
};

// A number, or null for one that was not finite. Throws what nlohmann throws for anything else.
double number(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

double number_or_zero(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? 0 : number(*found);
}

std::optional<double> optional_number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : std::optional(number(*found));
}

std::int64_t whole_or_zero(const Json& object, const char* key) {
  return object.value(key, std::int64_t{0});
}

StepMetrics step_of(const Json& object) {
  return {.step = object.at("step").get<std::int64_t>(),
          .loss = number(object.at("loss")),
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
          .skipped = object.value("skipped", false)};
}

EvalMetrics eval_of(const Json& object) {
  return {.step = object.at("step").get<std::int64_t>(),
          .loss = number(object.at("loss")),
          .accuracy = optional_number(object, "accuracy"),
          .bits_per_byte = optional_number(object, "bits_per_byte")};
}

// What a resumed run does again replaces what it did before.
template <class Metrics>
void append(std::vector<Metrics>& list, Metrics metrics) {
  while (!list.empty() && list.back().step >= metrics.step) list.pop_back();
  list.push_back(std::move(metrics));
}

void read_line(const std::string& text, const Line& line, RunMetrics& run) {
  try {
    const Json object = Json::parse(text);
    if (object.contains("eval"))
      append(run.evals, eval_of(object.at("eval")));
    else
      append(run.steps, step_of(object));
  } catch (const Json::exception& error) {
    throw_error<DataError>(kWhere, "{} line {} is no line of metrics: {}; remove it", line.path,
                           line.number, error.what());
  }
}

}  // namespace

RunMetrics read_metrics(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TESSERA_CHECK_AS(Error, file.is_open(), kWhere, "{} cannot be read: {}; name the folder of a run",
                   path, std::strerror(errno));
  RunMetrics run;
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    const bool has_end = !file.eof();
    if (text.empty()) continue;
    try {
      read_line(text, {.path = path, .number = number}, run);
    } catch (const DataError&) {
      if (has_end) throw;
      run.cut = true;
    }
  }
  TESSERA_CHECK_AS(Error, !file.bad(), kWhere, "{} cannot be read: {}; look after the disk", path,
                   std::strerror(errno));
  return run;
}

}  // namespace tessera::tools
