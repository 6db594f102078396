#include "tessera/tools/program/train.h"

#include <signal.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "tessera/distributed/parameters/rank_equality.h"
#include "tessera/distributed/trace/trace_session.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/models/data/fashion_mnist.h"
#include "tessera/models/runs/text_data.h"
#include "tessera/models/training/task.h"
#include "tessera/models/watch/run_files.h"
#include "tessera/tensor/determinism.h"
#include "tessera/tensor/io/failure_text.h"
#include "tessera/tensor/profile/profile.h"
#include "tessera/tensor/tf32.h"
#include "tessera/tools/program/checkpoints.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/output_paths.h"
#include "tessera/tools/program/run_folder.h"
#include "tessera/tools/program/run_report.h"

namespace tessera::tools {

using namespace models::runs;

namespace {

std::string kept_text(const TrainOptions& options, std::int64_t steps) {
  if (options.out.empty()) return "nothing is kept of a run without --out";
  if (steps == 0) return fmt::format("no file of {} has changed", options.out);
  if (!options.starts_first_rank())
    return fmt::format("{} 0 has what is kept", options.foreign_rank ? "rank" : "node");
  if (options.model == kMlp)
    return fmt::format(
        "{0} has weights, metrics and report of these steps: try them with tessera eval --run {0}",
        options.out);
  return fmt::format(
      "{0} has weights, metrics and report of these steps: try them with tessera eval --run {0} or "
      "tessera generate --run {0}",
      options.out);
}

std::string again_text(const TrainOptions& options, std::int64_t steps) {
  if (steps == 0 && !options.resume.empty()) return "the same command goes on as this one did";
  if (steps == 0 || options.save_period().never()) return "the same command starts again at step 1";
  return fmt::format("the same command with --resume auto goes on at step {}", steps + 1);
}

}  // namespace

std::string interruption_text(const TrainOptions& options,
                              const distributed::LaunchResult& result) {
  const std::string when =
      result.steps == 0 ? "before the first step" : fmt::format("after step {}", result.steps);
  return fmt::format("interrupted {}; {}; {}", when, kept_text(options, result.steps),
                     again_text(options, result.steps));
}

namespace {

bool is_language(const TrainOptions& options) { return options.model != kMlp; }

// Checks the data and prints a note about it, if any.
void check_data(const TrainOptions& options) {
  if (!is_language(options)) return models::data::check_fashion_mnist(options.data);
  const std::string note = check_text(options.data, options.tokenizer, options.seq_len);
  if (!note.empty()) print_output("note       {}\n", note);
}

std::vector<Input> inputs_of(const TrainOptions& options) {
  std::vector<Input> inputs = {{"--data", options.data}, {"--config", options.config}};
  if (options.tokenizer != "bytes") inputs.push_back({"--tokenizer", options.tokenizer});
  return inputs;
}

std::unique_ptr<RunFolder> hold_folder(const TrainOptions& options) {
  config_text(options);  // event files keep all of it: what cannot be kept is refused before a step
  TrainOptions kept = options;
  kept.out.clear();  // a repetition has its own folder, trace and profile, or none
  kept.trace = false;
  kept.profile = 0;
  // A model is useless without its tokenizer.
  return std::make_unique<RunFolder>(options.out, config_text(kept),
                                     options.tokenizer == "bytes" ? "" : options.tokenizer);
}

// Prints below the progress line, which stays.
void print_last(const std::string& text, const std::string& details = {}) {
  try {
    if (on_terminal()) write_output("\n");
  } catch (const Error&) {  // the terminal is gone
  }
  print_failure(text, details);
}

// Writes the failure into its reserved space before anything else.
int report_failure(RunFolder* folder, const distributed::LaunchResult& result) {
  if (folder != nullptr) folder->write_failure(printable(result.failure));
  print_last(result.failure, result.last_lines);
  return kRunFailed;
}

// A report that cannot be written is a failure of the run too.
void finish_folder(RunFolder& folder, const TrainOptions& options, bool failed) {
  if (!folder.has_begun()) return;
  try {
    finish_run_folder(options.out, failed);
  } catch (const std::exception& error) {
    folder.write_failure(printable(failure_text(error)));
    throw;
  }
}

// If launch() itself throws, nothing was started: the options or the machine do not allow it.
distributed::LaunchResult launch_ranks(const TrainOptions& options, int argc, char** argv) {
  try {
    return distributed::launch(argc, argv, options.launch_options(),
                               is_language(options) ? language_body(options) : mlp_body(options));
  } catch (const Error& error) {
    throw CannotStart(error.what());
  }
}

}  // namespace

Machine this_machine(const TrainOptions& options) {
  Machine machine{.cpu = detect_cpu_flags(), .gpus = {}};
  if (options.device == "cuda")
    machine.gpus = distributed::facts_of_this_host(options.launch_options());
  return machine;
}

void check_machine(const TrainOptions& options, const Machine& machine) {
  try {
    choose_cpu_isa(machine.cpu, requested_cpu_isa());
  } catch (const DeviceError& error) {
    throw CannotStart(error.what());
  }
  distributed::LaunchOptions launch = options.launch_options();
  if (options.foreign_rank) launch = distributed::with_gpus_of_launcher(launch, machine.gpus);
  const std::string shortage = distributed::gpu_shortage(launch, machine.gpus);
  if (!shortage.empty()) throw CannotStart("--device cuda: " + shortage);
  if (!options.cuda_graphs || options.world_size() == 1) return;
  if (!distributed::plan_gpus(launch, machine.gpus).by_nccl)
    throw CannotStart(fmt::format(
        "--cuda-graphs: {} ranks that share {} meet on the host, which cannot be recorded; give "
        "each a GPU of its own, or train on one rank",
        options.ranks, machine.gpus.gpus == 1 ? "one GPU" : "GPUs"));
}

int train(const TrainOptions& asked, int argc, char** argv) {
  TrainOptions options = asked;
  set_deterministic(options.deterministic);
  set_tf32_allowed(options.tf32);
  if (is_language(options)) options.tokenizer = tokenizer_for(options.data, options.tokenizer);
  // A rank process runs this code again; its parent has made the checks.
  const bool is_launcher = !distributed::is_rank_process();
  const bool writes = is_launcher && options.starts_first_rank() && !options.out.empty();
  if (is_launcher) {
    check_machine(options, this_machine(options));
    if (writes) check_run_folder(options.out, inputs_of(options));
    check_checkpoints(options);
    check_data(options);
  }
  const std::unique_ptr<RunFolder> folder = writes ? hold_folder(options) : nullptr;
  const distributed::LaunchResult result = launch_ranks(options, argc, argv);
  const bool failed = !result.failure.empty();
  const int code = failed ? report_failure(folder.get(), result) : result.exit_code;
  if (folder) finish_folder(*folder, options, failed);
  // If the reader closed the output, print nothing more.
  if (result.signal != 0 && result.signal != SIGPIPE)
    print_last(interruption_text(options, result));
  return code;
}

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
      world, distributed::TraceSessionOptions{.path = options.out + "/" + models::kTraceFile,
                                              .first_step = first,
                                              .steps = kTracedSteps});
}

// Profiles the steps of --profile, after those that warm up; of a short run the last steps.
class StepProfile {
 public:
  StepProfile(const TrainOptions& options, std::int64_t steps)
      : count_(std::min(options.profile, steps)), first_(std::min(kWarmUpSteps, steps - count_)) {}

  /// Runs step number `step`, counted from 0.
  models::StepMetrics step(models::Trainer& trainer, std::int64_t step) {
    if (step < first_ || step >= first_ + count_) return trainer.step();
    const Profile::Scope measured(profile_);
    return trainer.step();
  }

  /// Collective; `report` is null on ranks other than 0.
  void write(const distributed::World& world, RunReport* report) const {
    if (count_ == 0 || profile_.steps() == 0) return;
    const double mine =
        static_cast<double>(profile_.wall_ns()) * 1e-6 / static_cast<double>(profile_.steps());
    const std::vector<double> all = models::gather_figures(*world.group(), {&mine, 1});
    if (report == nullptr) return;
    const auto [least, most] = std::minmax_element(all.begin(), all.end());
    report->profile(profile_.table(
        {.title = fmt::format("profile of rank 0 of {} (a step took {:.3f} to {:.3f} ms on them)",
                              world.size(), *least, *most)}));
  }

 private:
  static constexpr std::int64_t kWarmUpSteps = 2;
  std::int64_t count_;
  std::int64_t first_;
  Profile profile_;
};

// The signal that any rank was asked to end for. Collective.
int agreed_signal(distributed::World& world) {
  const double mine = world.stop_signal();
  const std::vector<double> all = models::gather_figures(*world.group(), {&mine, 1});
  return static_cast<int>(*std::max_element(all.begin(), all.end()));
}

// Before the step's checkpoint: it must not hold what a broken rank computed.
void check_replicas_if_due(distributed::World& world, const models::Trainer& trainer,
                           const TrainOptions& options) {
  const std::int64_t step = trainer.steps_done();
  if (options.check_replicas == 0 || step % options.check_replicas != 0) return;
  try {
    distributed::assert_equal_across_ranks(*world.group(), trainer.parameters());
  } catch (const StateError& error) {
    throw StateError(fmt::format("after step {}: {}", step, error.what()));
  }
}

}  // namespace

void save_model(distributed::World& world, const TrainOptions& options, nn::Module& module) {
  if (options.out.empty()) return;
  fsdp::save_full_state(options.out + "/" + models::kModelFile, module, world.mesh());
}

std::int64_t total_steps(const TrainOptions& options, const models::Task& task) {
  return options.steps ? *options.steps : options.epochs.value_or(1) * task.steps_per_epoch();
}

bool goes_on(const ResumedFrom& from, std::int64_t steps, RunReport* report) {
  const bool is_left = from.step < steps;
  if (report != nullptr && !from.folder.empty())
    report->print(fmt::format("resumed    {}, after step {} of {}, loaded in {:.2f} s{}\n",
                              printable(from.folder), from.step, steps, from.seconds,
                              is_left ? "" : ": nothing is left to do"));
  return is_left;
}

TrainingEnd run_training(distributed::World& world, models::Trainer& trainer,
                         Checkpoints& checkpoints, const TrainOptions& options, std::int64_t steps,
                         RunReport* report, const std::function<double()>& measure_peak) {
  const ResumedFrom& from = checkpoints.resumed_from();
  const std::unique_ptr<distributed::TraceSession> trace =
      trace_of(world, options, steps - from.step);
  StepProfile profile(options, steps - from.step);
  const auto evaluate_if_due = [&](std::int64_t step) {
    if (options.eval_every == 0 || step % options.eval_every != 0 || step == steps) return;
    const Clock::time_point start = Clock::now();
    const models::EvalMetrics found = trainer.evaluate();
    const std::chrono::duration<double> time = Clock::now() - start;
    checkpoints.evaluated();
    if (report != nullptr) report->evaluated(found, time.count());
  };
  // Not before the first step, which would be later by it, nor among traced steps.
  const bool traces_first = trace && steps - from.step <= kTracedSteps;
  const auto measure_peak_if_due = [&](std::int64_t step) {
    if (!measure_peak || traces_first || step != from.step + 1 || step == steps) return;
    const Clock::time_point start = Clock::now();
    const double peak = measure_peak();
    const std::chrono::duration<double> time = Clock::now() - start;
    if (report != nullptr) report->set_peak(peak, time.count());
  };
  TrainingEnd end = {.signal = agreed_signal(world)};
  // A signal may have come before the evaluation that was due.
  if (from.step > from.evaluated && end.signal == 0) evaluate_if_due(from.step);
  for (std::int64_t step = from.step + 1; step <= steps && end.signal == 0; ++step) {
    if (trace) trace->begin_step(step - from.step - 1);
    const models::StepMetrics metrics = profile.step(trainer, step - from.step - 1);
    end = {.steps = step, .signal = metrics.stop_signal};
    if (report != nullptr) report->step(metrics);
    if (end.signal != 0) continue;
    check_replicas_if_due(world, trainer, options);
    measure_peak_if_due(step);
    evaluate_if_due(step);
    checkpoints.after_step(step == steps);
  }
  if (trace) trace->end();
  if (report != nullptr && end.steps > 0) report->trained();
  profile.write(world, report);
  checkpoints.finish(end.signal != 0);
  if (end.signal == 0) {
    const models::EvalMetrics metrics = trainer.evaluate();
    if (report != nullptr) report->final_evaluation(metrics);
    end.signal = agreed_signal(world);
    if (end.signal != 0) checkpoints.finish(true);
  }
  if (end.signal != 0) world.stopped_early(end.signal, end.steps);
  return end;
}

}  // namespace tessera::tools
