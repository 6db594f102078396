#include "tessera/tools/program/training_loop.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "tessera/distributed/trace_session.h"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTracedSteps = 3;

// Of a few steps after the first ones, which allocate and warm up; of the last ones of a short run.
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

}  // namespace

std::int64_t total_steps(const TrainOptions& options, const models::Task& task) {
  return options.steps ? *options.steps : options.epochs.value_or(1) * task.steps_per_epoch();
}

void run_training(distributed::World& world, models::Trainer& trainer, const TrainOptions& options,
                  std::int64_t steps, RunReport* report) {
  const std::unique_ptr<distributed::TraceSession> trace = trace_of(world, options, steps);
  for (std::int64_t step = 1; step <= steps; ++step) {
    if (trace) trace->begin_step(step - 1);
    const models::StepMetrics metrics = trainer.step();
    if (report != nullptr) report->step(metrics);
    if (options.eval_every == 0 || step % options.eval_every != 0 || step == steps) continue;
    const Clock::time_point start = Clock::now();
    const models::EvalMetrics found = trainer.evaluate();
    const std::chrono::duration<double> time = Clock::now() - start;
    if (report != nullptr) report->evaluated(found, time.count());
  }
  if (trace) trace->end();
  if (report != nullptr) report->trained();
  const models::EvalMetrics metrics = trainer.evaluate();
  if (report != nullptr) report->final_evaluation(metrics);
}

}  // namespace tessera::tools
