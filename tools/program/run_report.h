#pragma once

/// Output of rank 0 during a run: metrics.jsonl, event files, and the progress on standard output:
/// one line that is rewritten on a terminal, else about twenty lines.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/runs/train_options.h"
#include "tessera/models/training/metrics.h"
#include "tessera/models/watch/metrics_reader.h"
#include "tessera/models/watch/metrics_writer.h"
#include "tessera/models/watch/tensorboard.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tools/program/run_folder.h"

namespace tessera::tools {

/// The progress of a run on standard output: one line that is rewritten on a terminal, else about
/// twenty lines.
struct ProgressOptions {
  std::int64_t steps = 0;     ///< of the whole run
  std::int64_t done = 0;      ///< of them before this process, by the run that is continued
  double flops_per_item = 0;  ///< of training, per token (or sample)
};

class Progress {
 public:
  /// `print` writes to standard output.
  Progress(const ProgressOptions& options, std::function<void(const std::string&)> print);

  void step(const models::StepMetrics& metrics);
  /// Prints a line that is not overwritten. `seconds` do not count as training time.
  void note(const std::string& line, double seconds);
  /// From the next line on, shows the share of these operations per second, of all ranks. `seconds`
  /// do not count as training time.
  void set_peak(double flops, double seconds);
  /// Prints seconds and samples (or tokens) of the whole run. Call it after the last step.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool is_due(std::int64_t step, Clock::time_point now) const;
  void leave_out(double seconds);
  std::string line(const models::StepMetrics& metrics, Clock::time_point now) const;

  ProgressOptions options_;
  std::function<void(const std::string&)> print_;
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point shown_;
  double peak_flops_ = 0;  // 0: not known
  const char* unit_ = "samples";
  std::int64_t done_ = 0;   // steps
  std::int64_t items_ = 0;  // tokens if there are any, else samples
  // Since the last line that was shown.
  std::int64_t recent_items_ = 0;
  double recent_loss_ = 0;
};

/// True when standard output is a terminal.
bool on_terminal();

/// Output of rank 0 during a run: progress, metrics.jsonl, event files.

/// The files in `options.out`, if it is set, are opened after the first step and then replace those
/// of an earlier run: see run_folder.h.
class RunReport {
 public:
  /// `dtype` determines the digits of figures. If the reader of standard output has gone, `world`
  /// is asked to stop and nothing more is printed.
  /// `continued`: where the run in the folder, which goes on, has its metrics cut.
  RunReport(distributed::World& world, const models::runs::TrainOptions& options, DType dtype,
            const ProgressOptions& progress,
            const std::optional<models::watch::MetricsEnd>& continued = {});
  RunReport(const RunReport&) = delete;
  RunReport& operator=(const RunReport&) = delete;

  /// Prints to standard output.
  void print(const std::string& text);

  void step(const models::StepMetrics& metrics);
  /// Progress::set_peak.
  void set_peak(double flops, double seconds) { progress_.set_peak(flops, seconds); }
  /// After an evaluation during the run, which took `seconds`.
  void evaluated(const models::EvalMetrics& metrics, double seconds);
  /// After the last step that was run.
  void trained();
  /// The table of --profile: printed, and written if a step has run.
  void profile(const std::string& table);
  /// After the evaluation at the end of a complete run.
  void final_evaluation(const models::EvalMetrics& metrics);
  /// The generated sample, and figures for report.html. Files are written only if a step has run.
  void sample(const std::string& text);
  void summary(const models::runs::JsonMembers& figures);

 private:
  void begin();
  void stop_unread();
  void write(const models::EvalMetrics& metrics);

  distributed::World& world_;
  bool output_closed_ = false;
  models::runs::TrainOptions options_;
  DType dtype_;
  std::optional<models::watch::MetricsWriter> file_;
  std::optional<models::watch::TensorBoardWriter> events_;
  std::optional<models::watch::MetricsEnd> continued_;
  std::optional<models::EvalMetrics> waiting_;  // written with the first step
  Progress progress_;
};

/// "validation loss 1.2345, 1.7812 bits per byte", or "test loss 0.3 ..." of a classifier.
std::string describe(const models::EvalMetrics& metrics);

/// Writes the charts and report.html of a folder after its run has ended. If the run failed, errors
/// of the report are ignored.
void finish_run_folder(const std::string& folder, bool failed);

}  // namespace tessera::tools
