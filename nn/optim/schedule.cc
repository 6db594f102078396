#include "tessera/nn/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.schedule";

// A factor that falls from 1 to `to` over `steps` as fall(x) from 1 to 0 for x from 0 to 1.
Schedule falling(double to, std::int64_t steps, double shift, double (*fall)(double x)) {
  TESSERA_CHECK(steps >= 1, kWhere, "a decay of {} steps; it takes at least 1", steps);
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
  TESSERA_CHECK(steps >= 0, kWhere, "a warm-up of {} steps; it takes at least 0", steps);
  return [steps](std::int64_t step) {
    return step + 1 >= steps ? 1.0 : static_cast<double>(step + 1) / static_cast<double>(steps);
  };
}

Schedule linear(const LinearScheduleOptions& options) {
  TESSERA_CHECK(options.steps >= 1, kWhere, "linear over {} steps; it takes at least 1",
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
  TESSERA_CHECK(options.every >= 1, kWhere, "a decay every {} steps; it takes at least 1",
                options.every);
  return [options](std::int64_t step) {
    return std::pow(options.gamma, static_cast<double>(step / options.every));
  };
}

Schedule sequence(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones) {
  TESSERA_CHECK(schedules.size() == milestones.size() + 1, kWhere,
                "a sequence of {} schedules with {} milestones; it has one milestone fewer than "
                "schedules",
                schedules.size(), milestones.size());
  detail::check_schedules(kWhere, schedules);
  TESSERA_CHECK(std::is_sorted(milestones.begin(), milestones.end()) &&
                    (milestones.empty() || milestones.front() >= 0),
                kWhere, "milestones {} of a sequence; they do not fall, and none is below 0",
                fmt::join(milestones, ", "));
  return [schedules = std::move(schedules), milestones = std::move(milestones)](std::int64_t step) {
    const auto next = std::upper_bound(milestones.begin(), milestones.end(), step);
    const std::int64_t begin = next == milestones.begin() ? 0 : *std::prev(next);
    return schedules[static_cast<std::size_t>(next - milestones.begin())](step - begin);
  };
}

Schedule product(std::vector<Schedule> schedules) {
  TESSERA_CHECK(!schedules.empty(), kWhere, "a product of no schedules; it takes at least one");
  detail::check_schedules(kWhere, schedules);
  return [schedules = std::move(schedules)](std::int64_t step) {
    double factor = 1;
    for (const Schedule& schedule : schedules) factor *= schedule(step);
    return factor;
  };
}

Schedule warm_up_cosine(const WarmUpCosineOptions& options) {
  TESSERA_CHECK(options.steps >= 1, kWhere, "a run of {} steps; it takes at least 1",
                options.steps);
  const std::int64_t rest = std::max<std::int64_t>(1, options.steps - options.warm_up);
  return sequence({warm_up(options.warm_up),
                   cosine({.to = options.to, .steps = rest, .midpoints = options.midpoints})},
                  {options.warm_up});
}

Schedule wsd(const WsdOptions& options) {
  TESSERA_CHECK(options.stable >= 0, kWhere, "stable for {} steps; it takes at least 0",
                options.stable);
  return sequence({warm_up(options.warm_up), constant(), decay_of(options)},
                  {options.warm_up, options.warm_up + options.stable});
}

}  // namespace tessera::nn::optim
