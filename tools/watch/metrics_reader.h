#pragma once

/// Reads metrics.jsonl, the lines that models/training/metrics.h writes.

#include <string>
#include <vector>

#include "tessera/models/training/metrics.h"

namespace tessera::tools {

struct RunMetrics {
  std::vector<models::StepMetrics> steps;  ///< in increasing order
  std::vector<models::EvalMetrics> evals;  ///< in increasing order
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

}  // namespace tessera::tools
