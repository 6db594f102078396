#pragma once

/// Output of rank 0 during a run: progress, metrics.jsonl, event files.

#include <optional>
#include <string>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/training/metrics.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tools/program/options/train_options.h"
#include "tessera/tools/program/progress.h"
#include "tessera/tools/program/run_folder.h"
#include "tessera/tools/watch/tensorboard.h"

namespace tessera::tools {

/// The files in `options.out`, if it is set, are opened after the first step and then replace those
/// of an earlier run: see run_folder.h.
class RunReport {
 public:
  /// `dtype` determines the digits of figures. If the reader of standard output has gone, `world`
  /// is asked to stop and nothing more is printed.
  RunReport(distributed::World& world, const TrainOptions& options, DType dtype,
            const ProgressOptions& progress);
  RunReport(const RunReport&) = delete;
  RunReport& operator=(const RunReport&) = delete;

  /// Prints to standard output.
  void print(const std::string& text);

  void step(const models::StepMetrics& metrics);
  /// After an evaluation during the run, which took `seconds`.
  void evaluated(const models::EvalMetrics& metrics, double seconds);
  /// After the last step that was run.
  void trained();
  /// After the evaluation at the end of a complete run.
  void final_evaluation(const models::EvalMetrics& metrics);
  /// The generated sample, and figures for report.html. Files are written only if a step has run.
  void sample(const std::string& text);
  void summary(const JsonMembers& figures);

 private:
  void begin();
  void stop_unread();
  void write(const models::EvalMetrics& metrics);

  distributed::World& world_;
  bool output_closed_ = false;
  TrainOptions options_;
  DType dtype_;
  std::optional<MetricsFile> file_;
  std::optional<EventFile> events_;
  Progress progress_;
};

/// "validation loss 1.2345, 1.7812 bits per byte", or "test loss 0.3 ..." of a classifier.
std::string describe(const models::EvalMetrics& metrics);

/// Writes the charts and report.html of a folder after its run has ended. If the run failed, errors
/// of the report are ignored.
void finish_run_folder(const std::string& folder, bool failed);

}  // namespace tessera::tools
