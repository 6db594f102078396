#include "tessera/fsdp/runtime/activations.h"

#include <utility>
#include <vector>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/tensor/memory/transfer.h"

namespace tessera::fsdp {
namespace {

bool has_elements(const Variable& variable) {
  return variable.defined() && variable.tensor().defined();
}

Gradients pass_on(const Gradients& gradients, const BackwardContext&) { return gradients; }

}  // namespace

void cast_variables(const nn::VisitVariables& variables, DType dtype) {
  variables([dtype](Variable& variable) {
    if (has_elements(variable) && is_floating(variable.dtype()) && variable.dtype() != dtype)
      variable = cast(variable, dtype);
  });
}

void move_variables(const nn::VisitVariables& variables, Device device) {
  variables([device](Variable& variable) {
    if (!has_elements(variable) || variable.device() == device) return;
    const Device source = variable.device();
    const std::vector<Variable> inputs = {variable};
    const auto back = [source](const Gradients& gradients, const BackwardContext&) {
      return Gradients{Variable(to_device(gradients.front().tensor(), source))};
    };
    variable = record_differentiable("fsdp.to_device", {to_device(variable.tensor(), device)},
                                     inputs, back)
                   .front();
  });
}

void before_gradients(const nn::VisitVariables& results, const std::function<void()>& before) {
  results([&before](Variable& variable) {
    if (!variable.defined() || !variable.requires_grad()) return;
    if (variable.is_leaf()) {
      const std::vector<Variable> inputs = {variable};
      variable = record_differentiable("fsdp.output", {variable.tensor()}, inputs, pass_on).front();
    }
    variable.register_hook([before](const Variable&) {
      before();
      return Variable();
    });
  });
}

bool after_gradients(const nn::VisitVariables& arguments, std::function<void()> after) {
  std::vector<Variable> inputs;
  std::vector<Tensor> tensors;
  arguments([&](Variable& variable) {
    if (!variable.defined() || !variable.requires_grad()) return;
    inputs.push_back(variable);
    tensors.push_back(variable.tensor());
  });
  if (inputs.empty()) return false;
  const auto pass_through = [after = std::move(after)](const Gradients& gradients,
                                                       const BackwardContext&) {
    after();
    return gradients;
  };
  const std::vector<Variable> watched =
      record_differentiable("fsdp.post_backward", std::move(tensors), inputs, pass_through);
  std::size_t next = 0;
  arguments([&](Variable& variable) {
    if (variable.defined() && variable.requires_grad()) variable = watched[next++];
  });
  return true;
}

}  // namespace tessera::fsdp
