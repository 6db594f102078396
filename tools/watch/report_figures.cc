#include "tessera/tools/watch/report_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tessera/tools/watch/axis.h"
#include "tessera/tools/watch/report_charts.h"

namespace tessera::tools {
namespace {

using models::EvalMetrics;
using models::StepMetrics;

// The last loss is the mean of so many steps: a single step is noisy.
constexpr std::size_t kLastSteps = 20;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Value>
std::vector<double> of_steps(const RunMetrics& run, const Value& value) {
  std::vector<double> values;
  for (const StepMetrics& step : run.steps) values.push_back(value(step));
  return values;
}

void add_losses(const RunMetrics& run, std::vector<RunFigure>& figures) {
  const std::size_t count = std::min(run.steps.size(), kLastSteps);
  double sum = 0;
  for (std::size_t i = run.steps.size() - count; i < run.steps.size(); ++i)
    sum += run.steps[i].loss;
  if (count > 0)
    figures.push_back({"training loss", loss_label(sum / static_cast<double>(count)),
                       fmt::format("mean of the last {} steps", count)});
  if (run.evals.empty()) return;
  const EvalMetrics& last = run.evals.back();
  const std::string note = fmt::format("after step {}", last.step);
  figures.push_back({"validation loss", loss_label(last.loss), note});
  if (last.bits_per_byte)
    figures.push_back({"bits per byte", loss_label(*last.bits_per_byte), "of validation text"});
  if (last.accuracy)
    figures.push_back({"accuracy", fmt::format("{:.2f} %", 100 * *last.accuracy), note});
}

void add_speed(const RunMetrics& run, std::vector<RunFigure>& figures) {
  const bool tokens = std::any_of(run.steps.begin(), run.steps.end(),
                                  [](const StepMetrics& step) { return step.tokens > 0; });
  const double speed =
      median(tokens ? of_steps(run, [](const auto& step) { return step.tokens_per_second(); })
                    : of_steps(run, samples_per_second));
  figures.push_back({tokens ? "tokens per second" : "samples per second", plain_label(speed),
                     "median of the steps, all ranks"});
}

void add_totals(const RunMetrics& run, std::vector<RunFigure>& figures) {
  std::int64_t peak = 0, sent = 0, skipped = 0;
  double milliseconds = 0;
  for (const StepMetrics& step : run.steps) {
    peak = std::max(peak, step.peak_bytes);
    sent += step.comm_bytes;
    skipped += step.skipped;
    milliseconds += step.step_ms;
  }
  figures.push_back({"peak memory", bytes_label(static_cast<double>(peak)), "of the largest rank"});
  figures.push_back({"sent", bytes_label(static_cast<double>(sent)), "by all ranks together"});
  figures.push_back({"time in steps", duration_label(milliseconds / 1e3),
                     fmt::format("{} steps", run.steps.size())});
  if (skipped > 0)
    figures.push_back({"steps left out", std::to_string(skipped), "the loss scale was too large"});
}

}  // namespace

std::string loss_label(double loss) {
  constexpr double kFixedBelow = 1e4;
  const bool fixed = std::abs(loss) < kFixedBelow && std::abs(loss) >= 1e-2;
  return fixed ? fmt::format("{:.4f}", loss) : plain_label(loss);
}

std::string duration_label(double seconds) {
  if (!(seconds >= 0)) return "unknown";
  if (seconds < 1) return fmt::format("{:.0f} ms", 1e3 * seconds);
  if (seconds < 60) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::round(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::vector<RunFigure> run_figures(const RunMetrics& run) {
  std::vector<RunFigure> figures;
  add_losses(run, figures);
  if (run.steps.empty()) return figures;
  add_speed(run, figures);
  add_totals(run, figures);
  return figures;
}

}  // namespace tessera::tools
