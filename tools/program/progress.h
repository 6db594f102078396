#pragma once

/// The progress of a run on standard output: one line that is rewritten on a terminal, else about
/// twenty lines.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "tessera/models/training/metrics.h"

namespace tessera::tools {

struct ProgressOptions {
  std::int64_t steps = 0;     ///< of the whole run
  double flops_per_item = 0;  ///< of training, per token (or sample)
  double peak_flops = 0;      ///< of all ranks, per second; 0: no share is shown
};

class Progress {
 public:
  /// `print` writes to standard output.
  Progress(const ProgressOptions& options, std::function<void(const std::string&)> print);

  void step(const models::StepMetrics& metrics);
  /// Prints a line that is not overwritten. `seconds` do not count as training time.
  void note(const std::string& line, double seconds);
  /// Prints seconds and samples (or tokens) of the whole run. Call it after the last step.
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
  std::int64_t items_ = 0;  // tokens if there are any, else samples
  // Since the last line that was shown.
  std::int64_t recent_items_ = 0;
  double recent_loss_ = 0;
};

/// True when standard output is a terminal.
bool on_terminal();

}  // namespace tessera::tools
