#include "tessera/nn/optim/optimizer.h"

#include <algorithm>
#include <set>

#include "tessera/tensor/check.h"

namespace tessera::nn::optim {

Optimizer::Optimizer(const std::vector<Parameter>& parameters) {
  TESSERA_CHECK(!parameters.empty(), "nn.optim",
                "an optimizer needs parameters: the model has none, or the list is empty");
  std::set<const void*> seen;
  for (const Parameter& parameter : parameters) {
    if (seen.insert(parameter.id()).second) parameters_.push_back(parameter);
  }
}

void Optimizer::zero_grad() {
  std::vector<std::string> waiting;
  for (const Parameter& parameter : parameters_) {
    const ParameterOwner* owner = parameter.owner();
    if (owner == nullptr || !owner->has_pending_gradients()) continue;
    const std::string group = owner->group_name();
    if (std::find(waiting.begin(), waiting.end(), group) == waiting.end()) waiting.push_back(group);
  }
  TESSERA_CHECK_AS(
      StateError, waiting.empty(), "nn.optim",
      "zero_grad() while gradients of groups {} wait to be reduced: run a backward that "
      "reduces, or discard_pending_gradients()",
      fmt::join(waiting, ", "));
  for (Parameter& parameter : parameters_) parameter.zero_grad();
}

Tensor Optimizer::state(const Parameter& parameter, const std::string& name) const {
  const auto states = states_.find(parameter.id());
  if (states == states_.end()) return {};
  const auto found = states->second.find(name);
  return found == states->second.end() ? Tensor() : found->second;
}

Optimizer::StateTensor Optimizer::state_for_update(const Parameter& parameter,
                                                   const std::string& name) {
  const Tensor& local = parameter.local().tensor();
  Tensor& tensor = states_[parameter.id()][name];
  const bool is_new = !tensor.defined();
  if (is_new) {
    tensor = Tensor::empty_named(local.shape(), local.options(), MemoryCategory::kOptimizer,
                                 parameter.name() + "." + name);
  }
  TESSERA_CHECK_AS(StateError, tensor.shape() == local.shape(), "nn.optim",
                   "{} of \"{}\" has shape {}, local() has {}: it was sharded after a step of this "
                   "optimizer; build the optimizer again",
                   name, parameter.name(), tensor.shape().str(), local.shape().str());
  return {tensor, is_new};
}

std::vector<Parameter> Optimizer::parameters_to_update() const {
  std::vector<Parameter> out;
  for (const Parameter& parameter : parameters_) {
    if (parameter.requires_grad() && parameter.grad().defined()) out.push_back(parameter);
  }
  return out;
}

}  // namespace tessera::nn::optim
