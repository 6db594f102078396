#include "tessera/models/watch/report_sections.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "tessera/models/watch/axis.h"
#include "tessera/models/watch/chart.h"

namespace tessera::models::watch {
namespace {

// Sizes on the page, so that all texts are equally large: the loss has the full width, the others
// half.
constexpr double kWide = 1160, kWideHeight = 340;
constexpr double kNarrow = 573, kNarrowHeight = 280;

ChartSeries steps_series(const RunMetrics& run, std::string name, SeriesStyle style,
                         const std::function<double(const StepMetrics&)>& value) {
  ChartSeries series{.name = std::move(name), .style = style};
  series.points.reserve(run.steps.size());
  for (const StepMetrics& step : run.steps)
    series.points.push_back({.x = static_cast<double>(step.step), .y = value(step)});
  return series;
}

RunChart loss_chart(const RunMetrics& run) {
  std::vector<ChartSeries> series = {steps_series(
      run, "training", SeriesStyle::kSmoothed, [](const StepMetrics& step) { return step.loss; })};
  if (!run.evals.empty()) {
    ChartSeries evals{.name = "validation", .style = SeriesStyle::kMarkers};
    for (const EvalMetrics& eval : run.evals)
      evals.points.push_back({.x = static_cast<double>(eval.step), .y = eval.loss});
    series.push_back(std::move(evals));
  }
  return {"loss.svg",
          line_chart(series, {.id = "loss",
                              .title = "Loss",
                              .description = "The loss of each training step and of evaluations.",
                              .y_label = "nats, logarithmic scale",
                              .log_scale = true,
                              .width = kWide,
                              .height = kWideHeight})};
}

RunChart learning_rate_chart(const RunMetrics& run) {
  return {"learning_rate.svg",
          line_chart({steps_series(run, "learning rate", SeriesStyle::kLine,
                                   [](const StepMetrics& step) { return step.learning_rate; })},
                     {.id = "learning_rate",
                      .title = "Learning rate",
                      .description = "The optimizer's learning rate at each step.",
                      .from_zero = true,
                      .width = kNarrow,
                      .height = kNarrowHeight})};
}

// True if the value of a step is not zero. Values that a loop does not measure are zero.
template <class Value>
bool any_step(const RunMetrics& run, const Value& value) {
  return std::any_of(run.steps.begin(), run.steps.end(),
                     [&](const StepMetrics& step) { return value(step) != 0; });
}

bool has_tokens(const RunMetrics& run) {
  return any_step(run, [](const StepMetrics& step) { return step.tokens; });
}

RunChart throughput_chart(const RunMetrics& run) {
  const bool tokens = has_tokens(run);
  const std::string what = tokens ? "tokens per second" : "samples per second";
  const auto speed = [tokens](const StepMetrics& step) {
    return tokens ? step.tokens_per_second() : samples_per_second(step);
  };
  return {"throughput.svg",
          line_chart({steps_series(run, what, SeriesStyle::kSmoothed, speed)},
                     {.id = "throughput",
                      .title = "Throughput",
                      .description = "What all ranks together compute, step by step.",
                      .y_label = what + ", all ranks",
                      .from_zero = true,
                      .width = kNarrow,
                      .height = kNarrowHeight})};
}

RunChart memory_chart(const RunMetrics& run) {
  const auto all = [](const StepMetrics& step) { return static_cast<double>(step.peak_bytes); };
  const auto gathered = [](const StepMetrics& step) {
    return static_cast<double>(step.gathered_peak_bytes);
  };
  return {"memory.svg",
          line_chart({steps_series(run, "everything", SeriesStyle::kLine, all),
                      steps_series(run, "gathered parameters", SeriesStyle::kLine, gathered)},
                     {.id = "memory",
                      .title = "Memory",
                      .description = "The most that tensors took during each step.",
                      .y_label = "peak of each step, largest rank",
                      .unit = ValueUnit::kBytes,
                      .from_zero = true,
                      .width = kNarrow,
                      .height = kNarrowHeight})};
}

RunChart grad_norm_chart(const RunMetrics& run) {
  return {"grad_norm.svg",
          line_chart({steps_series(run, "gradient norm", SeriesStyle::kSmoothed,
                                   [](const StepMetrics& step) { return step.grad_norm; })},
                     {.id = "grad_norm",
                      .title = "Gradient norm",
                      .description = "The norm of all gradients before it is cut down.",
                      .y_label = "of all parameters, logarithmic scale",
                      .log_scale = true,
                      .width = kNarrow,
                      .height = kNarrowHeight})};
}

}  // namespace

double samples_per_second(const StepMetrics& step) {
  return step.step_ms > 0 ? static_cast<double>(step.samples) * 1e3 / step.step_ms : 0;
}

std::vector<RunChart> run_charts(const RunMetrics& run) {
  std::vector<RunChart> charts = {loss_chart(run)};
  const auto add = [&](RunChart (*chart)(const RunMetrics&), auto value) {
    if (run.steps.empty() || any_step(run, value)) charts.push_back(chart(run));
  };
  add(learning_rate_chart, [](const StepMetrics& step) { return step.learning_rate; });
  add(throughput_chart, [](const StepMetrics& step) { return step.step_ms; });
  add(memory_chart, [](const StepMetrics& step) { return step.peak_bytes; });
  add(grad_norm_chart, [](const StepMetrics& step) { return step.grad_norm; });
  return charts;
}

namespace {

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
  const bool tokens = has_tokens(run);
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
  if (peak > 0) {
    figures.push_back(
        {"peak memory", bytes_label(static_cast<double>(peak)), "of the largest rank"});
    figures.push_back({"sent", bytes_label(static_cast<double>(sent)), "by all ranks together"});
  }
  if (milliseconds != 0)
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
  if (any_step(run, [](const StepMetrics& step) { return step.step_ms; })) add_speed(run, figures);
  if (!run.steps.empty()) add_totals(run, figures);
  return figures;
}

}  // namespace tessera::models::watch
