#pragma once

/// Learning-rate schedules: pure functions of the step, made of one another.
///
///     const auto schedule = optim::sequence({optim::warm_up(100), optim::cosine({.steps = 900})},
///                                           {100});
///     optim::LrScheduler scheduler(optimizer, schedule);     // schedule.h
///
/// A schedule returns the factor of a group's initial lr. Steps are optimizer steps done so far, so
/// the first update has the factor of step 0; `steps` are updates that a schedule takes, after
/// which it stays where it is. Schedules throw InvalidArgument, when they are made, for numbers
/// outside the ranges that are written beside them, and for empty functions.

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::nn::optim {

using Schedule = std::function<double(std::int64_t step)>;

namespace detail {
/// Throws InvalidArgument naming the first that is an empty function.
void check_schedules(const char* where, const std::vector<Schedule>& schedules);
}  // namespace detail

Schedule constant(double factor = 1);

/// (step + 1) / steps, then 1: the last update of the warm-up has the full rate. 0 steps: always 1.
Schedule warm_up(std::int64_t steps);

struct LinearScheduleOptions {
  double from = 1;
  double to = 0;
  std::int64_t steps = 0;  ///< required, >= 1
};
/// from + (to - from) step / steps, then `to`.
Schedule linear(const LinearScheduleOptions& options);

struct CosineScheduleOptions {
  double to = 0;
  std::int64_t steps = 0;  ///< required, >= 1
  /// The rate in the middle of each step, at step + 1/2, so that the first is a little below 1 and
  /// the last as much above `to`; else at its start.
  bool midpoints = false;
};
/// to + (1 - to) (1 + cos(pi step / steps)) / 2, then `to`.
Schedule cosine(const CosineScheduleOptions& options);

struct StepScheduleOptions {
  std::int64_t every = 0;  ///< required, >= 1
  double gamma = 0.1;
};
/// gamma to the power of floor(step / every).
Schedule step_decay(const StepScheduleOptions& options);

struct MultiStepScheduleOptions {
  std::vector<std::int64_t> milestones = {};  ///< they do not fall, and none is below 0
  double gamma = 0.1;                         ///< >= 0
};
/// gamma to the power of the number of milestones that are at most step. A milestone that is given
/// twice counts twice.
Schedule multi_step(const MultiStepScheduleOptions& options);

struct ExponentialScheduleOptions {
  double gamma = 0;  ///< required, > 0
};
/// gamma to the power of step.
Schedule exponential(const ExponentialScheduleOptions& options);

struct PolynomialScheduleOptions {
  std::int64_t steps = 0;  ///< required, >= 1
  double power = 1;        ///< > 0
  double to = 0;
};
/// to + (1 - to) (1 - step / steps)^power, then `to`.
Schedule polynomial(const PolynomialScheduleOptions& options);

struct CosineRestartsOptions {
  std::int64_t steps = 0;     ///< of the first cycle: required, >= 1
  std::int64_t multiply = 1;  ///< steps of a cycle for each one of the cycle before, >= 1
  double to = 0;
};
/// cosine() again and again (Loshchilov and Hutter, "SGDR", 2017): each cycle begins at 1, and the
/// next one takes the place of its end, so no step has the factor `to`.
Schedule cosine_restarts(const CosineRestartsOptions& options);

/// schedules[0] before milestones[0], then schedules[1] before milestones[1], ...; each counts
/// steps from where it begins. Milestones do not fall, and are one fewer than the schedules.
Schedule sequence(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones);

/// The product of their factors, all of them at the same step. At least one.
Schedule product(std::vector<Schedule> schedules);

struct WarmUpCosineOptions {
  std::int64_t warm_up = 0;  ///< >= 0
  std::int64_t steps = 0;    ///< of the whole run, >= 1
  double to = 0;
  bool midpoints = false;  ///< as in CosineScheduleOptions
};
/// warm_up(), then cosine() over the rest of the run.
Schedule warm_up_cosine(const WarmUpCosineOptions& options);

enum class WsdDecay : std::uint8_t {
  kLinear,      ///< 1 - x, x running from 0 to 1
  kCosine,      ///< (1 + cos(pi x)) / 2
  kSquareRoot,  ///< 1 - sqrt(x)
};
struct WsdOptions {
  std::int64_t warm_up = 0;  ///< >= 0
  std::int64_t stable = 0;   ///< >= 0
  std::int64_t decay = 0;    ///< required, >= 1
  double to = 0;
  WsdDecay shape = WsdDecay::kLinear;
};
/// Warm-up, stable, decay (Hu et al., "MiniCPM", 2024): warm_up(), then 1 for `stable` steps, then
/// down to `to` over `decay` steps.
Schedule wsd(const WsdOptions& options);

enum class AnnealStrategy : std::uint8_t { kCosine, kLinear };
struct OneCycleOptions {
  std::int64_t steps = 0;  ///< of the whole run, >= 1
  double pct_start = 0.3;  ///< share of the steps that rise, in [0, 1]; with three_phase [0, 0.5]
  AnnealStrategy anneal_strategy = AnnealStrategy::kCosine;
  double div_factor = 25;         ///< > 0
  double final_div_factor = 1e4;  ///< > 0
  /// Down to 1 / div_factor in as many steps as up, and from there to the end.
  bool three_phase = false;
};
/// One cycle (Smith and Topin, "Super-convergence", 2018), with PyTorch's definition: from
/// 1 / div_factor up to 1, then down to 1 / (div_factor final_div_factor), which the last of the
/// steps has. So a group's lr is PyTorch's max_lr. The top is at step pct_start steps - 1; where
/// that is not whole, no step has the factor 1. Only rates change: momentum stays, as with
/// PyTorch's cycle_momentum = False.
Schedule one_cycle(const OneCycleOptions& options);

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
