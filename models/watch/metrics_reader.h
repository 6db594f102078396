#pragma once

/// Reads what a run wrote: JSON objects, and metrics.jsonl, the lines that
/// models/training/metrics.h writes. Only metrics_reader.cc includes the JSON library, which takes
/// seconds to compile.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/models/training/metrics.h"

namespace tessera::models::watch {

/// Reads JSON objects that a run wrote. Only metrics_reader.cc includes the JSON library, which takes
/// seconds to compile.

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

/// Reads metrics.jsonl, the lines that models/training/metrics.h writes.
struct RunMetrics {
  std::vector<StepMetrics> steps;  ///< in increasing order
  std::vector<EvalMetrics> evals;  ///< in increasing order
  bool cut = false;  ///< the last line is incomplete: the run was killed while writing it
};

/// Reads the steps of a run so far. An empty file is a run without steps.
///
/// A step that occurs again, after a run was repeated, replaces the steps that followed its first
/// occurrence. Unknown keys are ignored. Of a step, `step` and `loss` are required; other missing
/// keys are 0. A null (the number was not finite) becomes NaN.
///
/// Throws DataError naming file and line for an invalid line, unless it is the last one and has no
/// newline; Error with the system's reason if the file cannot be read.
RunMetrics read_metrics(const std::string& path);

/// Where the metrics of a run are cut that goes on from a checkpoint.
struct MetricsEnd {
  std::int64_t step = 0;       ///< the last step that stays
  std::int64_t eval_step = 0;  ///< the step of the last evaluation that stays
};
/// The file's lines that stay. Half a line at the end does not. Throws as read_metrics.
std::string metrics_until(const std::string& path, const MetricsEnd& end);

}  // namespace tessera::models::watch
