#include "tessera/tools/watch/report_charts.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tessera/tools/watch/chart.h"

namespace tessera::tools {
namespace {

using models::EvalMetrics;
using models::StepMetrics;

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

bool has_tokens(const RunMetrics& run) {
  return std::any_of(run.steps.begin(), run.steps.end(),
                     [](const StepMetrics& step) { return step.tokens > 0; });
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
  return {loss_chart(run), learning_rate_chart(run), throughput_chart(run), memory_chart(run),
          grad_norm_chart(run)};
}

}  // namespace tessera::tools
