#pragma once

/// The figures of a run as text.

#include <string>
#include <vector>

#include "tessera/tools/watch/metrics_reader.h"

namespace tessera::tools {

struct RunFigure {
  std::string name;   ///< "validation loss"
  std::string value;  ///< "1.912"
  std::string note;   ///< "after step 1500"
};

/// Losses, speed, memory, bytes sent and time, as far as the run has them.
std::vector<RunFigure> run_figures(const RunMetrics& run);

/// "1.9120"; "not finite".
std::string loss_label(double loss);
/// "4 min 31 s", "850 ms".
std::string duration_label(double seconds);

}  // namespace tessera::tools
