#include "tessera/tools/program/checkpoints.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tessera/distributed/rank_texts.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/checkpoint/index.h"
#include "tessera/models/training/task.h"
#include "tessera/models/watch/run_files.h"
#include "tessera/tensor/check.h"
#include "tessera/tools/program/options/output.h"

namespace tessera::tools {

using checkpoint::StepCheckpoint;
using models::runs::kResumeAuto;
using models::runs::TrainOptions;

namespace {

namespace fs = std::filesystem;

constexpr const char* kEvaluated = "program.evaluated";

std::string folder_of(const TrainOptions& options) {
  return options.out.empty() ? "" : options.out + "/" + models::kCheckpointsFolder;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The folder of the checkpoints among which --resume chooses; empty if it names one of them.
std::string parent_of_choice(const TrainOptions& options) {
  if (options.resume == kResumeAuto) return folder_of(options);
  if (exists(options.resume + "/" + checkpoint::kIndexFile)) return {};
  const std::string of_run = options.resume + "/" + models::kCheckpointsFolder;
  return exists(of_run) ? of_run : options.resume;
}

std::string problems_of(const std::vector<StepCheckpoint>& all) {
  std::string text;
  for (const StepCheckpoint& each : all)
    if (!each.problem.empty()) text += "; " + each.problem;
  return text;
}

// The checkpoint that --resume stands for; empty: the run begins at step 1.
std::string chosen_checkpoint(const TrainOptions& options) {
  if (options.resume.empty()) return {};
  const std::string parent = parent_of_choice(options);
  if (parent.empty()) return options.resume;
  if (const auto newest = checkpoint::newest(parent)) return *newest;
  if (options.resume == kResumeAuto) return {};
  throw CannotStart(fmt::format("--resume: {} holds no complete checkpoint{}", options.resume,
                                problems_of(checkpoint::list(parent))));
}

// The step of a checkpoint of this run's own folder, else nothing.
std::optional<std::int64_t> own_step(const TrainOptions& options, const std::string& chosen) {
  if (chosen.empty() || options.out.empty()) return std::nullopt;
  std::error_code ignored;
  for (const StepCheckpoint& each : checkpoint::list(folder_of(options)))
    if (fs::equivalent(each.folder, chosen, ignored)) return each.step;
  return std::nullopt;
}

// "; before it there is ...", or nothing.
std::string complete_before(const std::string& chosen) {
  std::error_code ignored;
  std::string before;
  for (const StepCheckpoint& each : checkpoint::list(fs::path(chosen).parent_path().string())) {
    if (fs::equivalent(each.folder, chosen, ignored)) break;
    if (each.problem.empty()) before = each.folder;
  }
  return before.empty() ? before : fmt::format("; before it there is \"{}\"", before);
}

std::string in_the_way(const TrainOptions& options, const StepCheckpoint& other,
                       const std::string& chosen) {
  if (options.resume.empty())
    return fmt::format(
        "--out: {} is a checkpoint of an earlier run; go on from it with --resume auto, choose "
        "another folder, or remove {} to begin again",
        other.folder, folder_of(options));
  if (!other.problem.empty())
    return fmt::format(
        "--resume: {} is not complete: {}; remove or rename it, and the run goes on{}",
        other.folder, other.problem, chosen.empty() ? " from the start" : " from " + chosen);
  return fmt::format(
      "--resume: {} is a later checkpoint in the folder of --out; remove it, or choose another "
      "folder",
      other.folder);
}

}  // namespace

void check_checkpoints(const TrainOptions& options) {
  const std::string chosen = chosen_checkpoint(options);
  if (options.out.empty() || !options.starts_first_rank()) return;
  const std::int64_t step = own_step(options, chosen).value_or(0);
  for (const StepCheckpoint& other : checkpoint::list(folder_of(options)))
    if (other.step > step) throw CannotStart(in_the_way(options, other, chosen));
}

Checkpoints::Checkpoints(distributed::World& world, models::Trainer& trainer,
                         const TrainOptions& options)
    : world_(world),
      trainer_(trainer),
      options_(options),
      period_(options.save_period()),
      folder_(folder_of(options)) {}

const ResumedFrom& Checkpoints::resume() {
  if (options_.resume.empty()) return from_;
  const Clock::time_point start = Clock::now();
  distributed::ProcessGroup* const group = world_.group().get();
  std::string chosen, is_own;
  distributed::on_first_rank(group, [&] {
    chosen = chosen_checkpoint(options_);
    is_own = own_step(options_, chosen) ? "yes" : "";
  });
  from_.folder = distributed::first_text(group, chosen);
  from_.is_own = !distributed::first_text(group, is_own).empty();
  if (from_.folder.empty()) return from_;
  nn::StateDict values;
  try {
    checkpoint::load(from_.folder, trainer_.checkpoint_state(values), {.device = world_.device()});
  } catch (const CheckpointError& failed) {  // on all ranks
    std::string before;
    distributed::on_first_rank(group, [&] { before = complete_before(from_.folder); });
    throw CheckpointError(failed.what() + distributed::first_text(group, before));
  }
  trainer_.resume(values);
  from_.step = trainer_.steps_done();
  evaluated_ = from_.evaluated = values.contains(kEvaluated) ? values.integer(kEvaluated) : 0;
  saved_step_ = from_.step;
  from_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return from_;
}

// A time is rank 0's, as clocks of ranks differ.
bool Checkpoints::is_due(bool is_last) {
  if (period_.steps > 0) return is_last || trainer_.steps_done() % period_.steps == 0;
  if (period_.seconds == 0) return false;
  const double mine = std::chrono::duration<double>(Clock::now() - saved_at_).count();
  return models::gather_figures(*world_.group(), {&mine, 1}).front() >= period_.seconds;
}

void Checkpoints::save() {
  if (under_way_) {
    saver_.wait();
    published();
  }
  const std::int64_t step = trainer_.steps_done();
  values_.set(kEvaluated, evaluated_);
  saver_.save(checkpoint::step_folder(folder_, step), trainer_.checkpoint_state(values_));
  under_way_ = true;
  saved_step_ = step;
  saved_at_ = Clock::now();
}

void Checkpoints::published() {
  under_way_ = false;
  if (options_.keep == 0) return;
  distributed::on_first_rank(world_.group().get(), [this] {
    checkpoint::keep_newest(folder_, static_cast<int>(options_.keep));
  });
}

void Checkpoints::after_step(bool is_last) {
  if (under_way_ && saver_.poll()) published();
  if (is_due(is_last)) save();
}

void Checkpoints::finish(bool interrupted) {
  if (interrupted && !period_.never() && trainer_.steps_done() > 0 &&
      saved_step_ != trainer_.steps_done())
    save();
  if (!under_way_) return;
  saver_.wait();
  published();
}

}  // namespace tessera::tools
