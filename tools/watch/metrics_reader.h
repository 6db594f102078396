#pragma once

/// Reads metrics.jsonl back: the lines that models/training/metrics.h writes.

#include <string>
#include <vector>

#include "tessera/models/training/metrics.h"

namespace tessera::tools {

struct RunMetrics {
  std::vector<models::StepMetrics> steps;  ///< steps rise
  std::vector<models::EvalMetrics> evals;  ///< likewise
  bool cut = false;  ///< the last line had no end and made no sense: the run was killed at it
};

/// What a run has reported so far. An empty file is a run without a step.
///
/// A step that comes again, after a run was resumed, replaces what followed it the first time.
/// Keys that are not known are passed over; of a step, `step` and `loss` must be there, the others
/// are 0 where they are not. A figure may be null (it was not finite), and is NaN then.
///
/// Throws DataError naming file and line for a line that is no such object, unless it is the last
/// one and lacks its end; Error with the system's reason for a file that cannot be read.
RunMetrics read_metrics(const std::string& path);

}  // namespace tessera::tools
