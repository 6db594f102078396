#include "tessera/nn/backward_hooks.h"

#include <utility>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/tensor/check.h"

namespace tessera::nn::detail {
namespace {

std::vector<Variable> collect(const VisitVariables& visit) {
  std::vector<Variable> out;
  visit([&out](Variable& variable) { out.push_back(variable); });
  return out;
}

// Replaces the variables that need gradients by results of one identity node, whose gradients pass
// through `arrived`. False where none needs one.
bool pass_through(const char* name, const VisitVariables& visit,
                  std::function<void(Gradients&)> arrived) {
  const std::vector<Variable> variables = collect(visit);
  std::vector<Tensor> tensors;
  bool any = false;
  for (const Variable& variable : variables) {
    tensors.push_back(variable.tensor());
    any = any || variable.requires_grad();
  }
  if (!any || !grad_enabled()) return false;
  const std::vector<Variable> outputs = record_differentiable(
      name, std::move(tensors), variables,
      [arrived = std::move(arrived)](const Gradients& gradients, const BackwardContext&) {
        Gradients passed = gradients;
        arrived(passed);
        return passed;
      });
  std::size_t i = 0;
  visit([&](Variable& variable) {
    // One that needs none keeps its handle: it would otherwise begin to.
    if (variable.requires_grad()) variable = outputs[i];
    ++i;
  });
  return true;
}

void check_gradients(const Gradients& before, const Gradients& after, const char* of) {
  TESSERA_CHECK(before.size() == after.size(), "nn.backward_hook",
                "a hook left {} gradients of {}, there are {}", after.size(), of, before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (!before[i].defined() || !after[i].defined()) continue;
    TESSERA_CHECK(before[i].shape() == after[i].shape(), "nn.backward_hook",
                  "a hook replaced gradient {} of {}, of shape {}, by one of shape {}", i, of,
                  before[i].shape().str(), after[i].shape().str());
  }
}

}  // namespace

void BackwardHookCall::watch_arguments(const VisitVariables& arguments) {
  arguments_ = collect(arguments).size();
  waits_for_arguments_ =
      pass_through("module_arguments", arguments,
                   [self = shared_from_this()](Gradients& g) { self->arguments_arrived(g); });
}

void BackwardHookCall::watch_results(const VisitVariables& results) {
  pass_through("module_results", results,
               [self = shared_from_this()](Gradients& g) { self->results_arrived(g); });
}

void BackwardHookCall::results_arrived(Gradients& gradients) {
  const Gradients before = gradients;
  callbacks_.on_results(gradients);
  check_gradients(before, gradients, "the results");
  if (waits_for_arguments_) {
    result_gradients_ = gradients;
    // A pass may end before it comes to the arguments. What is kept may then hold, by its own
    // history, the graph that holds this call.
    queue_callback([weak = weak_from_this()](bool) {
      if (const auto self = weak.lock()) self->result_gradients_.clear();
    });
    return;
  }
  Gradients none(arguments_);
  callbacks_.on_arguments(none, gradients);
}

void BackwardHookCall::arguments_arrived(Gradients& gradients) {
  const Gradients before = gradients;
  callbacks_.on_arguments(gradients, std::exchange(result_gradients_, {}));
  check_gradients(before, gradients, "the arguments");
}

}  // namespace tessera::nn::detail
