#pragma once

/// What a user sees of a run: on a terminal one line that is rewritten, elsewhere some twenty
/// lines.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "tessera/models/training/metrics.h"

namespace tessera::tools {

struct ProgressOptions {
  std::int64_t steps = 0;     ///< of the whole run
  double flops_per_item = 0;  ///< of training, for each token (or sample)
  double peak_flops = 0;      ///< of all ranks, per second; 0: their share is not shown
};

class Progress {
 public:
  /// Of a run, on standard output: `print` writes there.
  Progress(const ProgressOptions& options, std::function<void(const std::string&)> print);

  void step(const models::StepMetrics& metrics);
  /// A line that stays, and time that is not the training's.
  void note(const std::string& line, double seconds);
  /// After the last step that is done: seconds and samples (or tokens) of the whole run.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool is_due(std::int64_t step, Clock::time_point now) const;
  std::string line(const models::StepMetrics& metrics, Clock::time_point now) const;

  ProgressOptions options_;
  std::function<void(const std::string&)> print_;
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point shown_;
  const char* unit_ = "samples";
  std::int64_t done_ = 0;   // steps
  std::int64_t items_ = 0;  // samples, or tokens where there are any
  // Since the last time a line was shown.
  std::int64_t recent_items_ = 0;
  double recent_loss_ = 0;
};

/// True when standard output is a terminal.
bool on_terminal();

}  // namespace tessera::tools
