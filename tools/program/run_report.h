#pragma once

/// What rank 0 shows and writes of a run while it goes on: progress, metrics.jsonl, event files.

#include <optional>
#include <string>

#include "tessera/models/metrics.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tools/program/progress.h"
#include "tessera/tools/program/run_folder.h"
#include "tessera/tools/program/train_options.h"
#include "tessera/tools/watch/tensorboard.h"

namespace tessera::tools {

class RunReport {
 public:
  /// Opens the files of `options.out`, where there is one. `dtype` decides the digits of figures.
  RunReport(const TrainOptions& options, DType dtype, const ProgressOptions& progress);

  void step(const models::StepMetrics& metrics);
  /// In the middle of the run, after `seconds`.
  void evaluated(const models::EvalMetrics& metrics, double seconds);
  void trained();
  /// After the last step: the figures that a run ends with.
  void final_evaluation(const models::EvalMetrics& metrics);
  /// Figures for report.html, and the sample that a language model made.
  void sample(const std::string& text);
  void summary(const JsonMembers& figures);

 private:
  void write(const models::EvalMetrics& metrics);

  std::string folder_;
  DType dtype_;
  MetricsFile file_;
  std::optional<EventFile> events_;
  Progress progress_;
};

/// "validation loss 1.2345, 1.7812 bits per byte", or "test loss 0.3 ..." of a classifier.
std::string describe(const models::EvalMetrics& metrics);

/// The pictures and report.html of a folder, after its run ended, well or not: `failure` says why.
/// Nothing where there is no folder. A report that cannot be made of a failed run is left out.
void finish_run_folder(const std::string& folder, const std::string& failure);

}  // namespace tessera::tools
