#pragma once

/// What rank 0 shows and writes of a run while it goes on: progress, metrics.jsonl, event files.

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

/// The files of `options.out`, where there is one, are opened when the first step has run, and
/// then take the place of an earlier run's: see run_folder.h.
class RunReport {
 public:
  /// `dtype` decides the digits of figures. Where nobody reads standard output any more, `world` is
  /// asked to stop and nothing is shown from then on.
  RunReport(distributed::World& world, const TrainOptions& options, DType dtype,
            const ProgressOptions& progress);
  RunReport(const RunReport&) = delete;
  RunReport& operator=(const RunReport&) = delete;

  /// On standard output.
  void print(const std::string& text);

  void step(const models::StepMetrics& metrics);
  /// In the middle of the run, after `seconds`.
  void evaluated(const models::EvalMetrics& metrics, double seconds);
  /// After the last step that was done.
  void trained();
  /// After the last step of all: the figures that a run ends with.
  void final_evaluation(const models::EvalMetrics& metrics);
  /// Figures for report.html, and the sample that a language model made. Written after a step only.
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

/// The pictures and report.html of a folder, after its run ended, well or not. A report that cannot
/// be made of a failed run is left out.
void finish_run_folder(const std::string& folder, bool failed);

}  // namespace tessera::tools
