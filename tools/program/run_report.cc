#include "tessera/tools/program/run_report.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "tessera/models/watch/report.h"
#include "tessera/models/watch/run_files.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/options/texts.h"

namespace tessera::tools {

using namespace models::runs;

namespace {

constexpr std::int64_t kPlainLines = 20;
constexpr auto kRefresh = std::chrono::milliseconds(100);

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::max(1e-9, std::chrono::duration<double>(to - from).count());
}

// A line longer than the terminal could not be rewritten.
std::string cut_to_terminal(const std::string& line) {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return line;
  return line.substr(0, static_cast<std::size_t>(size.ws_col) - 1);
}

}  // namespace

bool on_terminal() { return isatty(STDOUT_FILENO) == 1; }

Progress::Progress(const ProgressOptions& options, std::function<void(const std::string&)> print)
    : options_(options),
      print_(std::move(print)),
      terminal_(on_terminal()),
      start_(Clock::now()),
      shown_(start_) {}

bool Progress::is_due(std::int64_t step, Clock::time_point now) const {
  if (step == options_.steps) return true;
  if (terminal_) return now - shown_ >= kRefresh;
  return step % ((options_.steps + kPlainLines - 1) / kPlainLines) == 0;
}

std::string Progress::line(const models::StepMetrics& metrics, Clock::time_point now) const {
  const double left = seconds_between(start_, now) /
                      static_cast<double>(metrics.step - options_.done) *
                      static_cast<double>(options_.steps - metrics.step);
  const double speed = static_cast<double>(recent_items_) / seconds_between(shown_, now);
  std::string share;
  if (peak_flops_ > 0)
    share = fmt::format("  {:.0f} % of peak", 100 * speed * options_.flops_per_item / peak_flops_);
  return fmt::format("step {:>{}}/{}  loss {:.4f}  {:.0f} {}/s{}  ETA {}  {:.1f} MB a rank",
                     metrics.step, std::to_string(options_.steps).size(), options_.steps,
                     recent_loss_ / static_cast<double>(recent_items_), speed, unit_, share,
                     short_time(left), static_cast<double>(metrics.peak_bytes) / 1e6);
}

void Progress::step(const models::StepMetrics& metrics) {
  const std::int64_t items = metrics.tokens > 0 ? metrics.tokens : metrics.samples;
  if (metrics.tokens > 0) unit_ = "tokens";
  done_ = metrics.step;
  items_ += items;
  recent_items_ += items;
  recent_loss_ += metrics.loss * static_cast<double>(items);
  const Clock::time_point now = Clock::now();
  if (!is_due(metrics.step, now)) return;
  print_(terminal_ ? fmt::format("\r{}\033[K", cut_to_terminal(line(metrics, now)))
                   : line(metrics, now) + "\n");
  shown_ = now;
  recent_items_ = 0;
  recent_loss_ = 0;
}

void Progress::note(const std::string& line, double seconds) {
  print_(fmt::format("{}{}\n", terminal_ ? "\r\033[K" : "", line));
  leave_out(seconds);
}

void Progress::set_peak(double flops, double seconds) {
  peak_flops_ = flops;
  leave_out(seconds);
}

void Progress::leave_out(double seconds) {
  const auto time =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  start_ += time;
  shown_ += time;
}

void Progress::finish() {
  const double seconds = seconds_between(start_, Clock::now());
  print_(fmt::format("{}trained {} steps in {:.1f} s, {:.0f} {}/s\n", terminal_ ? "\n" : "",
                     done_ - options_.done, seconds, static_cast<double>(items_) / seconds, unit_));
}

RunReport::RunReport(distributed::World& world, const TrainOptions& options, DType dtype,
                     const ProgressOptions& progress,
                     const std::optional<models::watch::MetricsEnd>& continued)
    : world_(world),
      options_(options),
      dtype_(dtype),
      continued_(continued),
      progress_(progress, [this](const std::string& text) { print(text); }) {}

void RunReport::begin() {
  if (options_.out.empty() || file_) return;
  begin_run(options_.out, continued_);
  file_.emplace(options_.out, dtype_);
  if (options_.tensorboard == "off") return;
  if (continued_)
    events_.emplace(options_.out, continued_->step + 1);
  else
    events_.emplace(options_.out);
  events_->add_text("config", config_text(options_));
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
  if (waiting_) write(*std::exchange(waiting_, std::nullopt));
  if (file_) file_->write(metrics);
  if (events_) events_->write(metrics);
  progress_.step(metrics);
}

void RunReport::write(const models::EvalMetrics& metrics) {
  if (!options_.out.empty() && !file_) {  // before the first step of a run that goes on
    waiting_ = metrics;
    return;
  }
  if (file_) file_->write(metrics);
  if (events_) events_->write(metrics);
}

void RunReport::evaluated(const models::EvalMetrics& metrics, double seconds) {
  write(metrics);
  progress_.note(fmt::format("step {}: {}", metrics.step, describe(metrics)), seconds);
}

void RunReport::trained() { progress_.finish(); }

void RunReport::profile(const std::string& table) {
  print(table);
  if (file_) write_text_file(options_.out + "/" + models::kProfileFile, table);
}

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
  if (file_) write_text_file(options_.out + "/" + models::kSampleFile, text);
  if (events_) events_->add_text("sample", text);
}

void RunReport::summary(const JsonMembers& figures) {
  if (file_)
    write_text_file(options_.out + "/" + models::kSummaryFile,
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
  if (!failed) return models::watch::write_report(folder);
  // The failure to report is the run's, not one of its report.
  try {
    if (std::filesystem::is_regular_file(folder + "/" + models::kMetricsFile))
      models::watch::write_report(folder);
  } catch (const std::exception&) {
  }
}

}  // namespace tessera::tools
