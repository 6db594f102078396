#include "tessera/tools/program/run_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "tessera/tools/watch/report.h"

namespace tessera::tools {

RunReport::RunReport(const TrainOptions& options, DType dtype, const ProgressOptions& progress)
    : folder_(options.out), dtype_(dtype), file_(options.out), progress_(progress) {
  if (folder_.empty() || options.tensorboard == "off") return;
  events_.emplace(folder_);
  events_->write_text("config", config_text(options));
}

void RunReport::step(const models::StepMetrics& metrics) {
  file_.write(json_line(metrics, dtype_));
  if (events_) events_->write(metrics);
  progress_.step(metrics);
}

void RunReport::write(const models::EvalMetrics& metrics) {
  file_.write(json_line(metrics, dtype_));
  if (events_) events_->write(metrics);
}

void RunReport::evaluated(const models::EvalMetrics& metrics, double seconds) {
  write(metrics);
  progress_.note(fmt::format("step {}: {}", metrics.step, describe(metrics)), seconds);
}

void RunReport::trained() { progress_.finish(); }

void RunReport::final_evaluation(const models::EvalMetrics& metrics) {
  write(metrics);
  if (metrics.accuracy)
    fmt::print("test loss {:.4f}\ntest accuracy {:.2f} %\n", metrics.loss, 100 * *metrics.accuracy);
  else
    fmt::print("{}\n", describe(metrics));
  std::fflush(stdout);
}

void RunReport::sample(const std::string& text) {
  fmt::print("sample:\n{}\n", text);
  std::fflush(stdout);
  if (!folder_.empty()) write_text_file(folder_ + "/" + kSampleFile, text);
  if (events_) events_->write_text("sample", text);
}

void RunReport::summary(const JsonMembers& figures) {
  if (!folder_.empty())
    write_text_file(folder_ + "/" + kSummaryFile, json_text(figures, InvalidUtf8::kReplace) + "\n");
}

std::string describe(const models::EvalMetrics& metrics) {
  if (metrics.accuracy)
    return fmt::format("test loss {:.4f}, accuracy {:.2f} %", metrics.loss,
                       100 * *metrics.accuracy);
  return fmt::format("validation loss {:.4f}, {:.4f} bits per byte", metrics.loss,
                     metrics.bits_per_byte.value_or(0));
}

void finish_run_folder(const std::string& folder, const std::string& failure) {
  if (folder.empty()) return;
  if (failure.empty()) return write_report(folder);
  // The failure that is reported is the run's, not one of its report.
  try {
    write_text_file(folder + "/" + kFailureFile, failure + "\n");
    if (std::filesystem::is_regular_file(folder + "/" + kMetricsFile)) write_report(folder);
  } catch (const std::exception&) {
  }
}

}  // namespace tessera::tools
