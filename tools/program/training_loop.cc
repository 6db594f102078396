#include "tessera/tools/program/training_loop.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "tessera/distributed/trace/trace_session.h"
#include "tessera/models/training/rank_figures.h"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTracedSteps = 3;

// Traces a few steps after the first ones, which allocate and warm up; of a short run the last
// steps.
std::unique_ptr<distributed::TraceSession> trace_of(distributed::World& world,
                                                    const TrainOptions& options,
                                                    std::int64_t steps) {
  if (!options.trace) return nullptr;
  const std::int64_t first = std::clamp<std::int64_t>(steps - kTracedSteps, 0, kTracedSteps);
  return std::make_unique<distributed::TraceSession>(
      world,
      distributed::TraceSessionOptions{
          .path = options.out + "/" + kTraceFile, .first_step = first, .steps = kTracedSteps});
}

// The signal that any rank was asked to end for. Collective.
int agreed_signal(distributed::World& world) {
  const double mine = world.stop_signal();
  const std::vector<double> all = models::gather_figures(*world.group(), {&mine, 1});
  return static_cast<int>(*std::max_element(all.begin(), all.end()));
}

}  // namespace

std::int64_t total_steps(const TrainOptions& options, const models::Task& task) {
  return options.steps ? *options.steps : options.epochs.value_or(1) * task.steps_per_epoch();
}

TrainingEnd run_training(distributed::World& world, models::Trainer& trainer,
                         const TrainOptions& options, std::int64_t steps, RunReport* report) {
  const std::unique_ptr<distributed::TraceSession> trace = trace_of(world, options, steps);
  TrainingEnd end = {.signal = agreed_signal(world)};
  for (std::int64_t step = 1; step <= steps && end.signal == 0; ++step) {
    if (trace) trace->begin_step(step - 1);
    const models::StepMetrics metrics = trainer.step();
    end = {.steps = step, .signal = metrics.stop_signal};
    if (report != nullptr) report->step(metrics);
    if (end.signal != 0) continue;
    if (options.eval_every == 0 || step % options.eval_every != 0 || step == steps) continue;
    const Clock::time_point start = Clock::now();
    const models::EvalMetrics found = trainer.evaluate();
    const std::chrono::duration<double> time = Clock::now() - start;
    if (report != nullptr) report->evaluated(found, time.count());
  }
  if (trace) trace->end();
  if (report != nullptr && end.steps > 0) report->trained();
  if (end.signal == 0) {
    const models::EvalMetrics metrics = trainer.evaluate();
    if (report != nullptr) report->final_evaluation(metrics);
    end.signal = agreed_signal(world);
  }
  if (end.signal != 0) world.stopped_early(end.signal, end.steps);
  return end;
}

}  // namespace tessera::tools
