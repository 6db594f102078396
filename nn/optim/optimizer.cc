#include "tessera/nn/optim/optimizer.h"

#include <algorithm>
#include <set>

#include "tessera/tensor/check.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/trace.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim";

void check_nothing_waits(const std::vector<Parameter>& parameters) {
  std::vector<std::string> waiting;
  for (const Parameter& parameter : parameters) {
    const ParameterOwner* owner = parameter.owner();
    if (owner == nullptr || !owner->has_pending_gradients()) continue;
    const std::string group = owner->group_name();
    if (std::find(waiting.begin(), waiting.end(), group) == waiting.end()) waiting.push_back(group);
  }
  TESSERA_CHECK_AS(
      StateError, waiting.empty(), kWhere,
      "zero_grad() while gradients of groups {} wait to be reduced: run a backward that "
      "reduces, or discard_pending_gradients()",
      fmt::join(waiting, ", "));
}

bool wants_update(const Parameter& parameter) {
  return parameter.requires_grad() && parameter.grad().defined();
}

}  // namespace

void Optimizer::step(const StepOptions& options) {
  std::vector<Parameter> updated;
  for (const Parameter& parameter : parameters_) {
    if (wants_update(parameter)) updated.push_back(parameter);
  }
  run_update(updated, options);
}

void Optimizer::step(const Parameter& parameter) {
  group_of(parameter);
  if (wants_update(parameter)) run_update({parameter}, {});
}

void Optimizer::run_update(const std::vector<Parameter>& parameters, const StepOptions& options) {
  const std::string name = type_name();
  const TracedPhase phase("optimizer", name, "step");
  new_states_.clear();
  const bool multiplies = options.gradient_scale.defined() && !applies_gradient_scale();
  if (multiplies) {
    for (const Parameter& parameter : parameters) mul_(parameter.grad(), options.gradient_scale);
  }
  gradient_scale_ = multiplies ? Tensor() : options.gradient_scale;
  try {
    update(parameters);
    gradient_scale_ = {};
  } catch (...) {
    gradient_scale_ = {};
    // Their elements are arbitrary; the next step makes them anew.
    for (const auto& [id, name] : new_states_) states_[id].erase(name);
    throw;
  }
  for (const Parameter& parameter : parameters) ++steps_[parameter.id()];
}

void Optimizer::zero_grad(ZeroGrad to) {
  check_nothing_waits(parameters_);
  for (Parameter& parameter : parameters_) {
    const Tensor grad = parameter.grad();
    if (to == ZeroGrad::kNone) {
      parameter.zero_grad();
    } else if (grad.defined() && grad.is_contiguous()) {
      zero_(grad);
    } else if (grad.defined()) {  // perhaps a view that shows an element several times
      const MemoryCategoryScope category(MemoryCategory::kGradient);
      parameter.set_grad(zeros(grad.shape(), grad.options()));
    }
  }
}

std::size_t Optimizer::checked_group(int group) const {
  TESSERA_CHECK(group >= 0 && group < group_count(), kWhere,
                "group {} does not exist: there are {}, counted from 0", group, group_count());
  return static_cast<std::size_t>(group);
}

int Optimizer::group_of(const Parameter& parameter) const {
  const auto found = group_by_id_.find(parameter.id());
  TESSERA_CHECK(found != group_by_id_.end(), kWhere,
                "\"{}\" of shape {} is not a parameter of this optimizer; add_group takes it in",
                parameter.name(), parameter.shape().str());
  return found->second;
}

double Optimizer::lr(int group) const {
  checked_group(group);
  return group_lr(group);
}

double Optimizer::initial_lr(int group) const { return initial_lrs_[checked_group(group)]; }

void Optimizer::set_lr(int group, double lr) {
  checked_group(group);
  set_group_lr(group, lr);
}

void Optimizer::set_lr(double lr) {
  for (int group = 0; group < group_count(); ++group) set_group_lr(group, lr);
}

Tensor Optimizer::state(const Parameter& parameter, const std::string& name) const {
  const auto states = states_.find(parameter.id());
  if (states == states_.end()) return {};
  const auto found = states->second.find(name);
  return found == states->second.end() ? Tensor() : found->second;
}

std::int64_t Optimizer::steps(const Parameter& parameter) const {
  const auto found = steps_.find(parameter.id());
  return found == steps_.end() ? 0 : found->second;
}

std::optional<Shape> Optimizer::state_shape(const Parameter& parameter,
                                            const std::string& /*name*/) const {
  return parameter.local().shape();
}

Optimizer::StateTensor Optimizer::state_for_update(const Parameter& parameter,
                                                   const std::string& name) {
  const Tensor& local = parameter.local().tensor();
  const Shape shape = state_shape(parameter, name).value();
  Tensor& tensor = states_[parameter.id()][name];
  const bool is_new = !tensor.defined();
  const DType dtype = compute_dtype(local.dtype());
  if (is_new) {
    new_states_.emplace_back(parameter.id(), name);
    tensor = Tensor::empty_named(shape, {.dtype = dtype, .device = local.device()},
                                 MemoryCategory::kOptimizer, parameter.name() + "." + name);
  }
  TESSERA_CHECK_AS(StateError, tensor.shape() == shape, kWhere,
                   "{} of \"{}\" has shape {}, local() has {}: it was sharded after a step of this "
                   "optimizer; build the optimizer again",
                   name, parameter.name(), tensor.shape().str(), local.shape().str());
  TESSERA_CHECK_AS(StateError, tensor.dtype() == dtype && tensor.device() == local.device(), kWhere,
                   "{} of \"{}\" is {} on {}, and would be {} on {}: the model was converted or "
                   "moved after a step of this optimizer; build the optimizer again",
                   name, parameter.name(), dtype_name(tensor.dtype()), tensor.device().str(),
                   dtype_name(dtype), local.device().str());
  return {tensor, is_new};
}

Tensor Optimizer::filled_state(const Parameter& parameter, const std::string& name,
                               double initial) {
  const auto [tensor, is_new] = state_for_update(parameter, name);
  if (is_new) fill_(tensor, initial);
  return tensor;
}

void Optimizer::add_parameters(std::vector<Parameter>& parameters, double lr) {
  std::set<const void*> seen;
  std::vector<Parameter> once;
  for (const Parameter& parameter : parameters) {
    const auto known = group_by_id_.find(parameter.id());
    TESSERA_CHECK(known == group_by_id_.end(), kWhere,
                  "\"{}\" of shape {} is in group {} already and shall be in group {}; a parameter "
                  "is in one group",
                  parameter.name(), parameter.shape().str(), known->second, group_count());
    if (seen.insert(parameter.id()).second) once.push_back(parameter);
  }
  for (const Parameter& parameter : once) {
    group_by_id_.emplace(parameter.id(), group_count());
    parameters_.push_back(parameter);
  }
  initial_lrs_.push_back(lr);
  parameters.swap(once);
}

void Optimizer::keep_states(int group, const std::vector<std::string>& names) {
  for (const Parameter& parameter : parameters_) {
    if (group_of(parameter) != group) continue;
    const auto states = states_.find(parameter.id());
    if (states == states_.end()) continue;
    std::erase_if(states->second, [&](const auto& entry) {
      return std::find(names.begin(), names.end(), entry.first) == names.end();
    });
  }
}

}  // namespace tessera::nn::optim
