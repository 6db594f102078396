#include "tessera/nn/optim/lr_scheduler.h"

#include <utility>

#include "tessera/nn/optim/saved_names.h"
#include "tessera/tensor/check.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kStep = "step";

}  // namespace

LrScheduler::LrScheduler(Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedules_{std::move(schedule)}, shared_(true) {
  set_rates();
}

LrScheduler::LrScheduler(Optimizer& optimizer, std::vector<Schedule> schedules)
    : optimizer_(optimizer), schedules_(std::move(schedules)), shared_(false) {
  set_rates();
}

void LrScheduler::step() {
  ++steps_;
  set_rates();
}

void LrScheduler::set_rates() {
  const int groups = optimizer_.group_count();
  TESSERA_CHECK(shared_ || static_cast<int>(schedules_.size()) == groups, "nn.optim.LrScheduler",
                "{} schedules for {} groups; give one for each, or one for all", schedules_.size(),
                groups);
  for (int group = 0; group < groups; ++group) {
    const Schedule& schedule = schedules_[shared_ ? 0 : static_cast<std::size_t>(group)];
    optimizer_.set_lr(group, optimizer_.initial_lr(group) * schedule(steps_));
  }
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
  steps_ = *step;
  set_rates();
}

}  // namespace tessera::nn::optim
