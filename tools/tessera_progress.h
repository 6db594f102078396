#pragma once

/// What a user sees of a run: on a terminal one line that is rewritten, elsewhere some twenty
/// lines.

#include <chrono>
#include <cstdint>

#include "tessera/models/metrics.h"

namespace tessera::tools {

class Progress {
 public:
  /// Of a run of `steps` steps, on standard output.
  explicit Progress(std::int64_t steps);

  void step(const models::StepMetrics& metrics);
  /// After the last step: seconds and samples of the whole run.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool is_due(std::int64_t step, Clock::time_point now) const;

  std::int64_t steps_;
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point shown_;
  std::int64_t samples_ = 0;
  // Since the last time a line was shown.
  std::int64_t recent_samples_ = 0;
  double recent_loss_ = 0;
};

/// True when standard output is a terminal.
bool on_terminal();

}  // namespace tessera::tools
