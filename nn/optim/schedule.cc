#include "tessera/nn/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "tessera/nn/optim/saved_names.h"
#include "tessera/tensor/check.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kSchedule = "nn.optim.schedule";

// A factor that falls from 1 to `to` over `steps` as fall(x) from 1 to 0 for x from 0 to 1.
template <class Fall>
Schedule falling(double to, std::int64_t steps, double shift, Fall fall) {
  TESSERA_CHECK(steps >= 1, kSchedule, "a decay of {} steps; it takes at least 1", steps);
  return [=](std::int64_t step) {
    const double place = (static_cast<double>(step) + shift) / static_cast<double>(steps);
    return to + (1 - to) * fall(std::min(place, 1.0));
  };
}

double half_cosine(double x) { return 0.5 * (1.0 + std::cos(std::numbers::pi * x)); }

Schedule decay_of(const WsdOptions& options) {
  switch (options.shape) {
    case WsdDecay::kLinear:
      return falling(options.to, options.decay, 0, [](double x) { return 1 - x; });
    case WsdDecay::kCosine:
      return falling(options.to, options.decay, 0, half_cosine);
    case WsdDecay::kSquareRoot:
      return falling(options.to, options.decay, 0, [](double x) { return 1 - std::sqrt(x); });
  }
  return constant();
}

// Milestones of `what`.
void check_milestones(const std::vector<std::int64_t>& milestones, const char* what) {
  TESSERA_CHECK(std::is_sorted(milestones.begin(), milestones.end()) &&
                    (milestones.empty() || milestones.front() >= 0),
                kSchedule, "milestones {} of {}; they do not fall, and none is below 0",
                fmt::join(milestones, ", "), what);
}

// From `from` to `to` for x from 0 to 1.
double anneal(AnnealStrategy strategy, double from, double to, double x) {
  switch (strategy) {
    case AnnealStrategy::kCosine:
      return to + (from - to) * half_cosine(x);
    case AnnealStrategy::kLinear:
      return from + (to - from) * x;
  }
  return to;
}

// A part of one_cycle(), up to and including step `end`, which need not be whole.
struct Phase {
  double end, from, to;
};

std::vector<Phase> phases_of(const OneCycleOptions& options) {
  const auto steps = static_cast<double>(options.steps);
  const double top = options.pct_start * steps - 1, last = steps - 1;
  const double first = 1 / options.div_factor, lowest = first / options.final_div_factor;
  if (!options.three_phase) return {{top, first, 1}, {last, 1, lowest}};
  return {{top, first, 1}, {2 * top, 1, first}, {last, first, lowest}};
}

}  // namespace

void detail::check_schedules(const char* where, const std::vector<Schedule>& schedules) {
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    TESSERA_CHECK(schedules[i] != nullptr, where, "schedule {} is an empty function", i);
  }
}

Schedule constant(double factor) {
  return [factor](std::int64_t) { return factor; };
}

Schedule warm_up(std::int64_t steps) {
  TESSERA_CHECK(steps >= 0, kSchedule, "a warm-up of {} steps; it takes at least 0", steps);
  return [steps](std::int64_t step) {
    return step + 1 >= steps ? 1.0 : static_cast<double>(step + 1) / static_cast<double>(steps);
  };
}

Schedule linear(const LinearScheduleOptions& options) {
  TESSERA_CHECK(options.steps >= 1, kSchedule, "linear over {} steps; it takes at least 1",
                options.steps);
  return [options](std::int64_t step) {
    if (step >= options.steps) return options.to;
    const double place = static_cast<double>(step) / static_cast<double>(options.steps);
    return options.from + (options.to - options.from) * place;
  };
}

Schedule cosine(const CosineScheduleOptions& options) {
  return falling(options.to, options.steps, options.midpoints ? 0.5 : 0, half_cosine);
}

Schedule step_decay(const StepScheduleOptions& options) {
  TESSERA_CHECK(options.every >= 1, kSchedule, "a decay every {} steps; it takes at least 1",
                options.every);
  return [options](std::int64_t step) {
    return std::pow(options.gamma, static_cast<double>(step / options.every));
  };
}

Schedule multi_step(const MultiStepScheduleOptions& options) {
  check_milestones(options.milestones, "multi_step");
  TESSERA_CHECK(options.gamma >= 0, kSchedule, "gamma of multi_step is {}; it is at least 0",
                options.gamma);
  return [options](std::int64_t step) {
    const auto& [milestones, gamma] = options;
    const auto next = std::upper_bound(milestones.begin(), milestones.end(), step);
    return std::pow(gamma, static_cast<double>(next - milestones.begin()));
  };
}

Schedule exponential(const ExponentialScheduleOptions& options) {
  TESSERA_CHECK(options.gamma > 0, kSchedule, "gamma of exponential is {}; it is above 0",
                options.gamma);
  return
      [options](std::int64_t step) { return std::pow(options.gamma, static_cast<double>(step)); };
}

Schedule polynomial(const PolynomialScheduleOptions& options) {
  TESSERA_CHECK(options.power > 0, kSchedule, "power of polynomial is {}; it is above 0",
                options.power);
  return falling(options.to, options.steps, 0,
                 [power = options.power](double x) { return std::pow(1 - x, power); });
}

Schedule cosine_restarts(const CosineRestartsOptions& options) {
  TESSERA_CHECK(options.steps >= 1, kSchedule, "a cycle of {} steps; it takes at least 1",
                options.steps);
  TESSERA_CHECK(options.multiply >= 1, kSchedule,
                "multiply of cosine_restarts is {}; it is at least 1", options.multiply);
  return [options](std::int64_t step) {
    auto steps = static_cast<double>(options.steps);
    auto place = static_cast<double>(options.multiply == 1 ? step % options.steps : step);
    while (place >= steps) {
      place -= steps;
      steps *= static_cast<double>(options.multiply);
    }
    return options.to + (1 - options.to) * half_cosine(place / steps);
  };
}

Schedule sequence(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones) {
  TESSERA_CHECK(schedules.size() == milestones.size() + 1, kSchedule,
                "a sequence of {} schedules with {} milestones; it has one milestone fewer than "
                "schedules",
                schedules.size(), milestones.size());
  detail::check_schedules(kSchedule, schedules);
  check_milestones(milestones, "a sequence");
  return [schedules = std::move(schedules), milestones = std::move(milestones)](std::int64_t step) {
    const auto next = std::upper_bound(milestones.begin(), milestones.end(), step);
    const std::int64_t begin = next == milestones.begin() ? 0 : *std::prev(next);
    return schedules[static_cast<std::size_t>(next - milestones.begin())](step - begin);
  };
}

Schedule product(std::vector<Schedule> schedules) {
  TESSERA_CHECK(!schedules.empty(), kSchedule, "a product of no schedules; it takes at least one");
  detail::check_schedules(kSchedule, schedules);
  return [schedules = std::move(schedules)](std::int64_t step) {
    double factor = 1;
    for (const Schedule& schedule : schedules) factor *= schedule(step);
    return factor;
  };
}

Schedule warm_up_cosine(const WarmUpCosineOptions& options) {
  TESSERA_CHECK(options.steps >= 1, kSchedule, "a run of {} steps; it takes at least 1",
                options.steps);
  const std::int64_t rest = std::max<std::int64_t>(1, options.steps - options.warm_up);
  return sequence({warm_up(options.warm_up),
                   cosine({.to = options.to, .steps = rest, .midpoints = options.midpoints})},
                  {options.warm_up});
}

Schedule wsd(const WsdOptions& options) {
  TESSERA_CHECK(options.stable >= 0, kSchedule, "stable for {} steps; it takes at least 0",
                options.stable);
  return sequence({warm_up(options.warm_up), constant(), decay_of(options)},
                  {options.warm_up, options.warm_up + options.stable});
}

Schedule one_cycle(const OneCycleOptions& options) {
  TESSERA_CHECK(options.steps >= 1, kSchedule, "a run of {} steps; it takes at least 1",
                options.steps);
  const double most = options.three_phase ? 0.5 : 1;
  TESSERA_CHECK(options.pct_start >= 0 && options.pct_start <= most, kSchedule,
                "pct_start of one_cycle is {}; {}it lies in [0, {}]", options.pct_start,
                options.three_phase ? "with three_phase " : "", most);
  TESSERA_CHECK(options.div_factor > 0, kSchedule, "div_factor of one_cycle is {}; it is above 0",
                options.div_factor);
  TESSERA_CHECK(options.final_div_factor > 0, kSchedule,
                "final_div_factor of one_cycle is {}; it is above 0", options.final_div_factor);
  return [phases = phases_of(options), strategy = options.anneal_strategy](std::int64_t step) {
    const double place = std::min(static_cast<double>(step), phases.back().end);
    std::size_t i = 0;
    while (place > phases[i].end) ++i;
    const double begin = i == 0 ? 0 : phases[i - 1].end, length = phases[i].end - begin;
    // A first phase of one step is its end.
    const double x = length > 0 ? (place - begin) / length : 1;
    return anneal(strategy, phases[i].from, phases[i].to, x);
  };
}

namespace {

constexpr const char* kScheduler = "nn.optim.LrScheduler";
constexpr const char* kStep = "step";

}  // namespace

LrScheduler::LrScheduler(Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedules_{std::move(schedule)}, shared_(true) {
  detail::check_schedules(kScheduler, schedules_);
  set_rates(0);
}

LrScheduler::LrScheduler(Optimizer& optimizer, std::vector<Schedule> schedules)
    : optimizer_(optimizer), schedules_(std::move(schedules)), shared_(false) {
  detail::check_schedules(kScheduler, schedules_);
  set_rates(0);
}

void LrScheduler::step() { set_rates(steps_ + 1); }

void LrScheduler::set_rates(std::int64_t steps) {
  const int groups = optimizer_.group_count();
  TESSERA_CHECK(shared_ || static_cast<int>(schedules_.size()) == groups, kScheduler,
                "{} schedules for {} groups; give one for each, or one for all", schedules_.size(),
                groups);
  std::vector<double> factors;
  for (int group = 0; group < groups; ++group) {
    factors.push_back(schedules_[shared_ ? 0 : static_cast<std::size_t>(group)](steps));
    TESSERA_CHECK(factors.back() >= 0, kScheduler,
                  "the schedule of group {} gives {} at step {}; a factor is at least 0", group,
                  factors.back(), steps);
  }
  for (int group = 0; group < groups; ++group) {
    optimizer_.set_lr(group,
                      optimizer_.initial_lr(group) * factors[static_cast<std::size_t>(group)]);
  }
  steps_ = steps;
}

std::vector<double> LrScheduler::last_lr() const {
  std::vector<double> out;
  for (int group = 0; group < optimizer_.group_count(); ++group) {
    out.push_back(optimizer_.lr(group));
  }
  return out;
}

StateDict LrScheduler::state_dict() const {
  StateDict out;
  out.set(kStep, steps_);
  return out;
}

void LrScheduler::load_state_dict(const StateDict& saved) {
  std::vector<std::string> problems;
  const StateValue* value = saved.find(kStep);
  const auto* step = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
  if (value == nullptr) {
    problems.emplace_back("step is missing");
  } else if (step == nullptr) {
    problems.push_back(fmt::format("step is a {}, not an integer", state_value_kind(*value)));
  } else if (*step < 0) {
    problems.push_back(fmt::format("step is {}; it is at least 0", *step));
  }
  for (const auto& [name, unused] : saved) {
    if (name != kStep) problems.push_back(fmt::format("\"{}\" is unknown", name));
  }
  throw_problems("nn.optim.load_state_dict", "LrScheduler", problems);
  set_rates(*step);
}

}  // namespace tessera::nn::optim
