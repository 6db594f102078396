#pragma once

/// Lowers learning rates where a metric stops improving, with PyTorch's definition:
///
///     optim::ReduceLROnPlateau scheduler(optimizer, {.factor = 0.5, .patience = 3});
///     for (...) {
///       train(...);
///       scheduler.step(validation_loss);
///     }
///
/// It multiplies the rates that the optimizer has; an LrScheduler (schedule.h) sets them from
/// initial_lr() and would undo that, so an optimizer has one or the other.
///
/// Nothing is sent between ranks: all of them must pass the same metric, for instance the mean of
/// nn::RunningMean::over_ranks(), or their rates come to differ.

#include <cstdint>
#include <vector>

#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::nn::optim {

enum class PlateauMode : std::uint8_t {
  kMin,  ///< smaller metrics are better: losses
  kMax,  ///< larger ones are: accuracies
};
/// A metric is better
enum class ThresholdMode : std::uint8_t {
  /// below best (1 - threshold), or, of kMax, above best (1 + threshold): for metrics above 0;
  kRel,
  /// below best - threshold, or, of kMax, above best + threshold.
  kAbs,
};

struct ReduceLROnPlateauOptions {
  PlateauMode mode = PlateauMode::kMin;
  double factor = 0.1;         ///< in [0, 1)
  std::int64_t patience = 10;  ///< bad metrics that change nothing, >= 0
  double threshold = 1e-4;     ///< >= 0; of kMin and kRel below 1
  ThresholdMode threshold_mode = ThresholdMode::kRel;
  std::int64_t cooldown = 0;         ///< metrics after a reduction that do not count as bad, >= 0
  double min_lr = 0;                 ///< >= 0
  std::vector<double> min_lrs = {};  ///< instead of min_lr one for each group, >= 0
  double eps = 1e-8;                 ///< a change of lr that is not larger is left out, >= 0
};

/// Used by the thread of its rank.
class ReduceLROnPlateau {
 public:
  /// `optimizer` must outlive the scheduler. Throws InvalidArgument for options outside their
  /// ranges, and unless there are as many min_lrs as groups, or none.
  explicit ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options = {});

  /// Counts one metric. Where more than `patience` in a row were not better than the best one, the
  /// lr of each group becomes max(lr * factor, min_lr), and the cooldown begins. Returns whether
  /// some lr changed. NaN is never better. Throws InvalidArgument when groups were added and there
  /// are min_lrs; then the metric is not counted.
  bool step(double metric);
  /// Metrics counted so far.
  std::int64_t steps() const { return steps_; }
  /// The rates of the groups, as the optimizer has them now.
  std::vector<double> last_lr() const;

  double best() const { return best_; }  ///< before the first metric infinity, of kMax -infinity
  /// Metrics in a row that were not better, since the last reduction or cooldown.
  std::int64_t num_bad_epochs() const { return num_bad_epochs_; }
  /// Metrics that the cooldown still takes.
  std::int64_t cooldown_counter() const { return cooldown_counter_; }
  bool in_cooldown() const { return cooldown_counter_ > 0; }

  /// "step", "best", "num_bad_epochs", "cooldown_counter". Options are not saved, and the rates are
  /// part of the optimizer's state.
  StateDict state_dict() const;
  /// Throws InvalidArgument listing what is wrong; then nothing is changed.
  void load_state_dict(const StateDict& saved);

 private:
  void check_groups() const;
  bool is_better(double metric) const;
  bool reduce();

  Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  double best_;
  std::int64_t steps_ = 0;
  std::int64_t num_bad_epochs_ = 0;
  std::int64_t cooldown_counter_ = 0;
};

}  // namespace tessera::nn::optim
