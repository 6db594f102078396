#pragma once

/// Checkpoints of a run: --save-every, --keep and --resume. They are in the folder "checkpoints" of --out
/// (models/watch/run_files.h), one folder a step.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/distributed/launch/world.h"
#include "tessera/fsdp/checkpoint/async_saver.h"
#include "tessera/models/runs/train_options.h"
#include "tessera/models/training/trainer.h"
#include "tessera/models/watch/metrics_reader.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::tools {

/// Throws CannotStart if --resume names no complete checkpoint, if --out has checkpoints of an earlier run and
/// this run does not resume one, and if --out has checkpoints of later steps than the resumed one. Only the
/// user removes such checkpoints. For the launcher.
void check_checkpoints(const models::runs::TrainOptions& options);

/// Where a resumed run goes on.
struct ResumedFrom {
  std::int64_t step = 0;       ///< the last one that was done; 0: the run begins
  std::string folder;          ///< of the checkpoint; empty: the run begins
  std::int64_t evaluated = 0;  ///< the step of the last evaluation
  bool is_own = false;         ///< it is in --out, whose metrics continue
  double seconds = 0;          ///< that its choice and its load took

  /// Where the metrics in --out are cut, if they continue.
  std::optional<models::watch::MetricsEnd> metrics_end() const {
    return is_own ? std::optional(models::watch::MetricsEnd{.step = step, .eval_step = evaluated})
                  : std::nullopt;
  }
};

/// Loads and saves the checkpoints of one run, on every rank. Files are written by a thread while training
/// goes on. All functions are collective.
class Checkpoints {
 public:
  /// All arguments must outlive the object.
  Checkpoints(distributed::World& world, models::Trainer& trainer,
              const models::runs::TrainOptions& options);

  /// Loads the checkpoint of --resume, if any. Rank 0 chooses it. Throws on all ranks as checkpoint::load()
  /// and Trainer::resume(); a damaged checkpoint names the complete one before it.
  const ResumedFrom& resume();
  const ResumedFrom& resumed_from() const { return from_; }

  /// Notes an evaluation after the step that was done last, which the next checkpoint says.
  void evaluated() { evaluated_ = trainer_.steps_done(); }

  /// After each step, and what belongs to it: saves if one is due, and publishes what is written.
  void after_step(bool is_last);
  /// After the last step that was run: waits for the save that is under way. With `interrupted`, saves
  /// that step first unless that was done.
  void finish(bool interrupted);

 private:
  using Clock = std::chrono::steady_clock;
  bool is_due(bool is_last);
  void save();
  void published();

  distributed::World& world_;
  models::Trainer& trainer_;
  const models::runs::TrainOptions& options_;
  models::runs::SavePeriod period_;
  std::string folder_;
  ResumedFrom from_;
  std::int64_t evaluated_ = 0;
  nn::StateDict values_;
  checkpoint::AsyncSaver saver_;
  std::optional<std::int64_t> saved_step_;  // the last that was begun
  bool under_way_ = false;
  Clock::time_point saved_at_ = Clock::now();  // rank 0's counts
};

}  // namespace tessera::tools
