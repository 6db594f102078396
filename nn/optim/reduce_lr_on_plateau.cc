#include "tessera/nn/optim/reduce_lr_on_plateau.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "tessera/nn/optim/saved_names.h"
#include "tessera/tensor/check.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.ReduceLROnPlateau";
constexpr const char* kStep = "step";
constexpr const char* kBest = "best";
constexpr const char* kNumBadEpochs = "num_bad_epochs";
constexpr const char* kCooldownCounter = "cooldown_counter";

void check_options(const ReduceLROnPlateauOptions& options) {
  TESSERA_CHECK(options.factor >= 0 && options.factor < 1, kWhere,
                "factor is {}; it lies in [0, 1)", options.factor);
  TESSERA_CHECK(options.patience >= 0, kWhere, "patience is {}; it is at least 0",
                options.patience);
  TESSERA_CHECK(options.threshold >= 0, kWhere, "threshold is {}; it is at least 0",
                options.threshold);
  TESSERA_CHECK(options.threshold < 1 || options.mode == PlateauMode::kMax ||
                    options.threshold_mode == ThresholdMode::kAbs,
                kWhere, "threshold is {}; of kMin and kRel it is below 1", options.threshold);
  TESSERA_CHECK(options.cooldown >= 0, kWhere, "cooldown is {}; it is at least 0",
                options.cooldown);
  TESSERA_CHECK(options.min_lr >= 0, kWhere, "min_lr is {}; it is at least 0", options.min_lr);
  for (double min_lr : options.min_lrs) {
    TESSERA_CHECK(min_lr >= 0, kWhere, "min_lrs are {}; they are at least 0",
                  fmt::join(options.min_lrs, ", "));
  }
  TESSERA_CHECK(options.eps >= 0, kWhere, "eps is {}; it is at least 0", options.eps);
}

// The value of a name, or 0 and one more problem.
std::int64_t saved_count(const StateDict& saved, const char* name,
                         std::vector<std::string>& problems) {
  const StateValue* value = saved.find(name);
  const auto* count = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
  if (value == nullptr) {
    problems.push_back(fmt::format("{} is missing", name));
  } else if (count == nullptr) {
    problems.push_back(fmt::format("{} is a {}, not an integer", name, state_value_kind(*value)));
  } else if (*count < 0) {
    problems.push_back(fmt::format("{} is {}; it is at least 0", name, *count));
  }
  return count == nullptr ? 0 : *count;
}

double saved_best(const StateDict& saved, std::vector<std::string>& problems) {
  const StateValue* value = saved.find(kBest);
  const auto* best = value == nullptr ? nullptr : std::get_if<double>(value);
  if (value == nullptr) {
    problems.push_back(fmt::format("{} is missing", kBest));
  } else if (best == nullptr) {
    problems.push_back(fmt::format("{} is a {}, not a number", kBest, state_value_kind(*value)));
  } else if (std::isnan(*best)) {
    problems.push_back(fmt::format("{} is NaN, which no metric is better than", kBest));
  }
  return best == nullptr ? 0 : *best;
}

}  // namespace

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options)
    : optimizer_(optimizer),
      options_(options),
      best_(options.mode == PlateauMode::kMin ? std::numeric_limits<double>::infinity()
                                              : -std::numeric_limits<double>::infinity()) {
  check_options(options);
  check_groups();
}

void ReduceLROnPlateau::check_groups() const {
  const auto groups = static_cast<std::size_t>(optimizer_.group_count());
  TESSERA_CHECK(options_.min_lrs.empty() || options_.min_lrs.size() == groups, kWhere,
                "{} min_lrs for {} groups; give one for each, or min_lr for all",
                options_.min_lrs.size(), groups);
}

bool ReduceLROnPlateau::is_better(double metric) const {
  const bool smaller = options_.mode == PlateauMode::kMin;
  const double change = smaller ? -options_.threshold : options_.threshold;
  double needed = best_;
  switch (options_.threshold_mode) {
    case ThresholdMode::kRel:
      needed *= 1 + change;
      break;
    case ThresholdMode::kAbs:
      needed += change;
      break;
  }
  return smaller ? metric < needed : metric > needed;
}

bool ReduceLROnPlateau::step(double metric) {
  check_groups();
  ++steps_;
  if (is_better(metric)) {
    best_ = metric;
    num_bad_epochs_ = 0;
  } else {
    ++num_bad_epochs_;
  }
  if (in_cooldown()) {
    --cooldown_counter_;
    num_bad_epochs_ = 0;
  }
  if (num_bad_epochs_ <= options_.patience) return false;
  cooldown_counter_ = options_.cooldown;
  num_bad_epochs_ = 0;
  return reduce();
}

bool ReduceLROnPlateau::reduce() {
  bool reduced = false;
  for (int group = 0; group < optimizer_.group_count(); ++group) {
    const double min_lr = options_.min_lrs.empty()
                              ? options_.min_lr
                              : options_.min_lrs[static_cast<std::size_t>(group)];
    const double before = optimizer_.lr(group);
    const double after = std::max(before * options_.factor, min_lr);
    if (!(before - after > options_.eps)) continue;
    optimizer_.set_lr(group, after);
    reduced = true;
  }
  return reduced;
}

std::vector<double> ReduceLROnPlateau::last_lr() const {
  std::vector<double> out;
  for (int group = 0; group < optimizer_.group_count(); ++group) {
    out.push_back(optimizer_.lr(group));
  }
  return out;
}

StateDict ReduceLROnPlateau::state_dict() const {
  StateDict out;
  out.set(kStep, steps_);
  out.set(kBest, best_);
  out.set(kNumBadEpochs, num_bad_epochs_);
  out.set(kCooldownCounter, cooldown_counter_);
  return out;
}

void ReduceLROnPlateau::load_state_dict(const StateDict& saved) {
  std::vector<std::string> problems;
  const std::int64_t steps = saved_count(saved, kStep, problems);
  const double best = saved_best(saved, problems);
  const std::int64_t bad = saved_count(saved, kNumBadEpochs, problems);
  const std::int64_t cooldown = saved_count(saved, kCooldownCounter, problems);
  const std::array<std::string, 4> known = {kStep, kBest, kNumBadEpochs, kCooldownCounter};
  for (const auto& [name, unused] : saved) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      problems.push_back(fmt::format("\"{}\" is unknown", name));
    }
  }
  throw_problems("nn.optim.load_state_dict", "ReduceLROnPlateau", problems);
  steps_ = steps;
  best_ = best;
  num_bad_epochs_ = bad;
  cooldown_counter_ = cooldown;
}

}  // namespace tessera::nn::optim
