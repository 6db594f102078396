#include "tessera/nn/optim/ema.h"

#include <algorithm>
#include <exception>
#include <set>

#include "tessera/nn/optim/saved_names.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.Ema";
constexpr const char* kUpdates = "updates";
constexpr const char* kAverage = "average.";

double decay_at(const EmaOptions& options, std::int64_t update) {
  const auto t = static_cast<double>(update);
  return options.warm_up ? std::min(options.decay, (1 + t) / (10 + t)) : options.decay;
}

// What keeps `value` from being an average of `parameter`; empty when nothing does.
std::string average_problem(const StateValue* value, const Parameter& parameter) {
  if (!parameter.is_materialized()) return "has no elements here: call nn::initialize(model)";
  if (value == nullptr) return "is missing";
  const Tensor* tensor = std::get_if<Tensor>(value);
  if (tensor == nullptr) return fmt::format("is a {}, not a tensor", state_value_kind(*value));
  const Shape& shape = parameter.local().shape();
  if (!is_floating(tensor->dtype())) {
    return fmt::format("is {}, and averages are floating", dtype_name(tensor->dtype()));
  }
  if (tensor->device().is_null() && !parameter.local().device().is_null()) {
    return "is on the null device: it has no elements";
  }
  if (tensor->shape() == shape) return {};
  return fmt::format("has shape {}, not {}", tensor->shape().str(), shape.str());
}

}  // namespace

Ema::Ema(const std::vector<Parameter>& parameters, const EmaOptions& options) : options_(options) {
  TESSERA_CHECK(!parameters.empty(), kWhere,
                "an average needs parameters: the model has none, or the list is empty");
  TESSERA_CHECK(options.decay >= 0 && options.decay < 1, kWhere, "decay is {}; it lies in [0, 1)",
                options.decay);
  std::set<const void*> seen;
  for (const Parameter& parameter : parameters) {
    if (seen.insert(parameter.id()).second) parameters_.push_back(parameter);
  }
}

Tensor Ema::make_average(const Parameter& parameter) const {
  const Tensor& local = parameter.local().tensor();
  return Tensor::empty_named(local.shape(),
                             {.dtype = compute_dtype(local.dtype()), .device = local.device()},
                             MemoryCategory::kOptimizer, parameter.name() + ".average");
}

void Ema::update() {
  TESSERA_CHECK_AS(StateError, !is_swapped_in_, kWhere,
                   "update() while the parameters have the averages for values: end the EmaScope "
                   "first");
  std::vector<Tensor> averages = averages_;
  const bool is_first = averages.empty();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& local = parameters_[i].local().tensor();
    if (is_first) averages.push_back(make_average(parameters_[i]));
    TESSERA_CHECK_AS(StateError, averages[i].shape() == local.shape(), kWhere,
                     "the average of \"{}\" has shape {}, local() has {}: it was sharded after an "
                     "update; build the average again",
                     parameters_[i].name(), averages[i].shape().str(), local.shape().str());
  }
  const double decay = is_first ? 0 : decay_at(options_, updates_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    axpby_(averages[i], parameters_[i].local().tensor(), {.alpha = 1 - decay, .beta = decay});
  }
  averages_ = std::move(averages);
  ++updates_;
}

Tensor Ema::average(const Parameter& parameter) const {
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    if (parameters_[i].same_as(parameter)) return averages_[i];
  }
  return {};
}

void Ema::copy_to(const std::vector<Parameter>& targets) const {
  TESSERA_CHECK_AS(StateError, updates_ > 0, kWhere, "there is no average yet: call update()");
  TESSERA_CHECK(targets.size() == parameters_.size(), kWhere,
                "{} parameters to copy averages of {} to; the lists must agree", targets.size(),
                parameters_.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Shape& shape = targets[i].local().shape();
    TESSERA_CHECK(shape == averages_[i].shape(), kWhere,
                  "\"{}\" of shape {} does not take the average of \"{}\" of shape {}",
                  targets[i].name(), shape.str(), parameters_[i].name(),
                  averages_[i].shape().str());
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    copy_(targets[i].local().tensor(), averages_[i]);
  }
}

StateDict Ema::state_dict() const {
  parameters_by_name(kWhere, parameters_);  // throws
  StateDict out;
  out.set(kUpdates, updates_);
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const std::string name = kAverage + parameters_[i].name();
    out.set(name, averages_[i]);
    const ShardSpec& spec = parameters_[i].spec();
    if (!spec.is_whole()) out.mark_part(name, spec);
  }
  return out;
}

void Ema::load_state_dict(const StateDict& saved) {
  const auto named = parameters_by_name(kWhere, parameters_);
  std::vector<std::string> problems;
  const StateValue* value = saved.find(kUpdates);
  const auto* updates = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
  if (updates == nullptr || *updates < 0) problems.emplace_back("updates is not a count");
  const bool has_averages = updates != nullptr && *updates > 0;
  for (const auto& [name, parameter] : named) {
    if (!has_averages) continue;
    const std::string problem = average_problem(saved.find(kAverage + name), parameter);
    if (!problem.empty()) problems.push_back(kAverage + name + " " + problem);
  }
  for (const auto& [name, unused] : saved) {
    const bool known = name == kUpdates || (has_averages && name.starts_with(kAverage) &&
                                            named.count(name.substr(std::string(kAverage).size())));
    if (!known) problems.push_back(fmt::format("\"{}\" is unknown", name));
  }
  throw_problems("nn.optim.load_state_dict", "Ema", problems);
  std::vector<Tensor> averages;
  for (const Parameter& parameter : parameters_) {
    if (!has_averages) break;
    averages.push_back(make_average(parameter));
    const Tensor& average = averages.back();
    copy_(average, to_device(saved.tensor(kAverage + parameter.name()), average.device()));
  }
  averages_ = std::move(averages);
  updates_ = *updates;
}

EmaScope::EmaScope(Ema& ema) : ema_(ema) {
  TESSERA_CHECK_AS(StateError, !ema.is_swapped_in_, kWhere,
                   "the parameters have the averages for values already: one EmaScope at a time");
  {
    const MemoryCategoryScope category(MemoryCategory::kOptimizer);
    for (const Parameter& parameter : ema.parameters_) {
      values_.push_back(clone(parameter.local().tensor()));
    }
  }
  ema.copy_to(ema.parameters_);
  ema.is_swapped_in_ = true;
}

void EmaScope::restore() {
  if (!active_) return;
  active_ = false;
  ema_.is_swapped_in_ = false;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    copy_(ema_.parameters_[i].local().tensor(), values_[i]);
  }
  values_.clear();
}

EmaScope::~EmaScope() {
  try {
    restore();
  } catch (const std::exception&) {
    // What failed on a device or a stream is reported by the next call there.
  }
}

}  // namespace tessera::nn::optim
