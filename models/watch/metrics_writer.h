#pragma once

/// Writes metrics.jsonl: the metrics of a training loop, one JSON object per line.
///
///     models::watch::MetricsWriter metrics("runs/first");
///     metrics.write(models::StepMetrics{.step = 1, .loss = 2.3, .learning_rate = 0.1});
///     metrics.write(models::EvalMetrics{.step = 1, .loss = 2.1, .accuracy = 0.8});
///     models::watch::write_report("runs/first");   // report.h: charts and report.html
///
/// Of a step, only `step` and `loss` are needed; the report leaves out what is zero in every step.

#include <string>

#include "tessera/models/training/metrics.h"
#include "tessera/models/watch/appended_file.h"
#include "tessera/tensor/dtype.h"

namespace tessera::models::watch {

/// metrics.jsonl of a folder, open for appending. A line is passed to the system before write()
/// returns, so it survives the end of the process. Half a line at the end of the file, of a process
/// that was killed, is removed first; and if a line cannot be written (disk full), the file is
/// truncated to its previous end. A step that is written again replaces, for
/// readers, the steps that followed it: a loop that resumes may go on with the same file. Used by
/// one thread; with several ranks, rank 0 writes.
class MetricsWriter {
 public:
  /// Creates the folder if it does not exist. `dtype` is the one that losses are computed in: it
  /// determines their digits. Throws Error with path and reason if the file cannot be written.
  explicit MetricsWriter(const std::string& folder, DType dtype = DType::kF32);

  const std::string& path() const { return file_.path(); }

  /// Both throw Error with path and reason if the line cannot be written.
  void write(const StepMetrics& metrics);
  void write(const EvalMetrics& metrics);

 private:
  DType dtype_;
  AppendedFile file_;
};

}  // namespace tessera::models::watch
