#include "tessera/tools/tessera_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace tessera::tools {
namespace {

constexpr std::int64_t kPlainLines = 20;
constexpr auto kRefresh = std::chrono::milliseconds(100);

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::max(1e-9, std::chrono::duration<double>(to - from).count());
}

}  // namespace

bool on_terminal() { return isatty(STDOUT_FILENO) == 1; }

Progress::Progress(std::int64_t steps)
    : steps_(steps), terminal_(on_terminal()), start_(Clock::now()), shown_(start_) {}

bool Progress::is_due(std::int64_t step, Clock::time_point now) const {
  if (step == steps_) return true;
  if (terminal_) return now - shown_ >= kRefresh;
  return step % ((steps_ + kPlainLines - 1) / kPlainLines) == 0;
}

void Progress::step(const models::StepMetrics& metrics) {
  samples_ += metrics.samples;
  recent_samples_ += metrics.samples;
  recent_loss_ += metrics.loss * static_cast<double>(metrics.samples);
  const Clock::time_point now = Clock::now();
  if (!is_due(metrics.step, now)) return;
  const double left = seconds_between(start_, now) / static_cast<double>(metrics.step) *
                      static_cast<double>(steps_ - metrics.step);
  const std::string line = fmt::format(
      "step {:>{}}/{}  loss {:.4f}  {:.0f} samples/s  ETA {}  {:.1f} MB a rank", metrics.step,
      std::to_string(steps_).size(), steps_, recent_loss_ / static_cast<double>(recent_samples_),
      static_cast<double>(recent_samples_) / seconds_between(shown_, now), duration(left),
      static_cast<double>(metrics.peak_bytes) / 1e6);
  if (terminal_)
    fmt::print("\r{}\033[K", line);
  else
    fmt::print("{}\n", line);
  std::fflush(stdout);
  shown_ = now;
  recent_samples_ = 0;
  recent_loss_ = 0;
}

void Progress::finish() {
  const double seconds = seconds_between(start_, Clock::now());
  fmt::print("{}trained {} steps in {:.1f} s, {:.0f} samples/s\n", terminal_ ? "\n" : "", steps_,
             seconds, static_cast<double>(samples_) / seconds);
  std::fflush(stdout);
}

}  // namespace tessera::tools
