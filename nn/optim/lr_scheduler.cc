#include "tessera/nn/optim/lr_scheduler.h"

#include <utility>

#include "tessera/nn/optim/saved_names.h"
#include "tessera/tensor/check.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.LrScheduler";
constexpr const char* kStep = "step";

}  // namespace

LrScheduler::LrScheduler(Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedules_{std::move(schedule)}, shared_(true) {
  detail::check_schedules(kWhere, schedules_);
  set_rates(0);
}

LrScheduler::LrScheduler(Optimizer& optimizer, std::vector<Schedule> schedules)
    : optimizer_(optimizer), schedules_(std::move(schedules)), shared_(false) {
  detail::check_schedules(kWhere, schedules_);
  set_rates(0);
}

void LrScheduler::step() { set_rates(steps_ + 1); }

void LrScheduler::set_rates(std::int64_t steps) {
  const int groups = optimizer_.group_count();
  TESSERA_CHECK(shared_ || static_cast<int>(schedules_.size()) == groups, kWhere,
                "{} schedules for {} groups; give one for each, or one for all", schedules_.size(),
                groups);
  std::vector<double> factors;
  for (int group = 0; group < groups; ++group) {
    factors.push_back(schedules_[shared_ ? 0 : static_cast<std::size_t>(group)](steps));
    TESSERA_CHECK(factors.back() >= 0, kWhere,
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
