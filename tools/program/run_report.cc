#include "tessera/tools/program/run_report.h"

#include <fmt/format.h>
#include <signal.h>

#include <filesystem>

#include "tessera/tools/program/options/output.h"
#include "tessera/tools/watch/report.h"

namespace tessera::tools {

RunReport::RunReport(distributed::World& world, const TrainOptions& options, DType dtype,
                     const ProgressOptions& progress)
    : world_(world),
      options_(options),
      dtype_(dtype),
      progress_(progress, [this](const std::string& text) { print(text); }) {}

void RunReport::begin() {
  if (options_.out.empty() || file_) return;
  begin_run(options_.out);
  file_.emplace(options_.out);
  if (options_.tensorboard == "off") return;
  events_.emplace(options_.out);
  events_->write_text("config", config_text(options_));
}

void RunReport::print(const std::string& text) {
  if (output_closed_) return;
  try {
    write_output(text);
  } catch (const OutputClosed&) {
    stop_unread();
  }
}

void RunReport::stop_unread() {
  output_closed_ = true;
  world_.ask_to_stop(SIGPIPE);
}

void RunReport::step(const models::StepMetrics& metrics) {
  begin();
  if (!output_closed_ && is_output_closed()) stop_unread();  // the next print may be much later
  if (file_) file_->write(json_line(metrics, dtype_));
  if (events_) events_->write(metrics);
  progress_.step(metrics);
}

void RunReport::write(const models::EvalMetrics& metrics) {
  if (file_) file_->write(json_line(metrics, dtype_));
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
    print(fmt::format("test loss {:.4f}\ntest accuracy {:.2f} %\n", metrics.loss,
                      100 * *metrics.accuracy));
  else
    print(describe(metrics) + "\n");
}

void RunReport::sample(const std::string& text) {
  print(fmt::format("sample:\n{}\n", text));
  if (file_) write_text_file(options_.out + "/" + kSampleFile, text);
  if (events_) events_->write_text("sample", text);
}

void RunReport::summary(const JsonMembers& figures) {
  if (file_)
    write_text_file(options_.out + "/" + kSummaryFile,
                    json_text(figures, InvalidUtf8::kReplace) + "\n");
}

std::string describe(const models::EvalMetrics& metrics) {
  if (metrics.accuracy)
    return fmt::format("test loss {:.4f}, accuracy {:.2f} %", metrics.loss,
                       100 * *metrics.accuracy);
  return fmt::format("validation loss {:.4f}, {:.4f} bits per byte", metrics.loss,
                     metrics.bits_per_byte.value_or(0));
}

void finish_run_folder(const std::string& folder, bool failed) {
  if (!failed) return write_report(folder);
  // The failure to report is the run's, not one of its report.
  try {
    if (std::filesystem::is_regular_file(folder + "/" + kMetricsFile)) write_report(folder);
  } catch (const std::exception&) {
  }
}

}  // namespace tessera::tools
