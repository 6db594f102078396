#pragma once

/// The parts of a report: charts, figures, and the page that holds them. Private to this folder.

#include <string>
#include <vector>

#include "tessera/models/watch/metrics_reader.h"

namespace tessera::models::watch {

/// The charts of a run.
struct RunChart {
  std::string file;  ///< "loss.svg"
  std::string svg;
};

/// Loss, learning rate, throughput, memory and gradient norm, in this order; all but the loss only
/// if some step has the value. A run without steps has all five, empty.
std::vector<RunChart> run_charts(const RunMetrics& run);

/// samples / step_ms, in samples per second.
double samples_per_second(const StepMetrics& step);

/// The figures of a run as text.
struct RunFigure {
  std::string name;   ///< "validation loss"
  std::string value;  ///< "1.912"
  std::string note;   ///< "after step 1500"
};

/// Losses, speed, memory, bytes sent and time, as far as the steps have them.
std::vector<RunFigure> run_figures(const RunMetrics& run);

/// "1.9120"; "not finite".
std::string loss_label(double loss);
/// "4 min 31 s", "850 ms".
std::string duration_label(double seconds);

/// report.html: one page with all charts and figures.
struct ReportPage {
  std::string title;
  const RunMetrics& run;
  const std::vector<RunChart>& charts;
  const std::vector<JsonRow>& config;
  const std::vector<JsonRow>& summary;
  std::string sample;   ///< of any bytes; empty: none
  std::string profile;  ///< likewise
  std::string failure;  ///< likewise
};

/// HTML that is also well-formed XML.
std::string html_of(const ReportPage& page);

}  // namespace tessera::models::watch
