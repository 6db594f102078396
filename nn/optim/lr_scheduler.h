#pragma once

/// Binds a schedule to an optimizer: each group's lr is initial_lr times the factor of the step.
///
///     optim::LrScheduler scheduler(optimizer, optim::cosine({.steps = 1000}));
///     for (...) {
///       backward(loss);
///       optimizer.step();
///       scheduler.step();      // after optimizer.step()
///     }
///
/// What set_lr() changed by hand lasts until the next step(). Used by the thread of its rank.

#include <cstdint>
#include <vector>

#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::nn::optim {

class LrScheduler {
 public:
  /// One schedule for all groups, also those that are added later. Sets the rates of step 0.
  /// `optimizer` must outlive the scheduler. Throws InvalidArgument for an empty function.
  LrScheduler(Optimizer& optimizer, Schedule schedule);
  /// One for each group. Throws InvalidArgument unless there are as many as groups, and
  /// for an empty function.
  LrScheduler(Optimizer& optimizer, std::vector<Schedule> schedules);

  /// Counts one step and sets its rates. Throws InvalidArgument as the second constructor, when
  /// groups were added, and for a factor below 0; then it is not counted and no rate is changed.
  void step();
  /// Steps counted so far.
  std::int64_t steps() const { return steps_; }
  /// The rates of the groups, as the optimizer has them now.
  std::vector<double> last_lr() const;

  /// "step". The schedule itself is code and is not saved.
  StateDict state_dict() const;
  /// Goes on from the saved step and sets its rates. Throws InvalidArgument listing what is wrong.
  void load_state_dict(const StateDict& saved);

 private:
  void set_rates(std::int64_t steps);

  Optimizer& optimizer_;
  std::vector<Schedule> schedules_;
  bool shared_;  // one schedule for all groups
  std::int64_t steps_ = 0;
};

}  // namespace tessera::nn::optim
