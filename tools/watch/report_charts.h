#pragma once

/// The charts of a run.

#include <string>
#include <vector>

#include "tessera/tools/watch/metrics_reader.h"

namespace tessera::tools {

struct RunChart {
  std::string file;  ///< "loss.svg"
  std::string svg;
};

/// Loss, learning rate, throughput, memory and gradient norm, in this order. Works for a run
/// without steps.
std::vector<RunChart> run_charts(const RunMetrics& run);

/// samples / step_ms, in samples per second.
double samples_per_second(const models::StepMetrics& step);

}  // namespace tessera::tools
