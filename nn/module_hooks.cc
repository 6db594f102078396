#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/nn/backward_hooks.h"
#include "tessera/nn/module.h"
#include "tessera/nn/module_members.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/trace.h"

namespace tessera::nn {
namespace {

template <class Signature>
HookHandle add(HookList<Signature>& list, std::function<Signature> hook,
               const ForwardHookOptions& options) {
  using Position = typename HookList<Signature>::Position;
  return list.add(std::move(hook), options.first ? Position::kFirst : Position::kLast);
}

void trace_call(const Module& module, const ScopeName& scope, std::string_view phase) {
  if (active_timed_trace() == nullptr) return;
  const std::string path = scope.path();
  annotate("module", path.empty() ? module.type_name() : path, phase);
}

/// The end of the call for a trace, behind the last hook.
class ForwardEnd {
 public:
  ForwardEnd(const Module& module, const ScopeName& scope) : module_(module), scope_(scope) {}
  ~ForwardEnd() { trace_call(module_, scope_, "forward_end"); }
  ForwardEnd(const ForwardEnd&) = delete;
  ForwardEnd& operator=(const ForwardEnd&) = delete;

 private:
  const Module& module_;
  const ScopeName& scope_;
};

}  // namespace

HookHandle Module::register_forward_pre_hook(ForwardPreHook hook,
                                             const ForwardHookOptions& options) {
  TESSERA_CHECK(hook != nullptr, "nn.register_forward_pre_hook", "the hook is empty");
  return add(members_->pre_hooks, std::move(hook), options);
}

HookHandle Module::register_forward_hook(ForwardHook hook, const ForwardHookOptions& options) {
  TESSERA_CHECK(hook != nullptr, "nn.register_forward_hook", "the hook is empty");
  if (!options.always) {
    hook = [hook = std::move(hook)](Module& module, const VisitVariables* results) {
      if (results != nullptr) hook(module, results);
    };
  }
  return add(members_->forward_hooks, std::move(hook), options);
}

HookHandle Module::register_full_backward_hook(BackwardHook hook,
                                               const ForwardHookOptions& options) {
  TESSERA_CHECK(hook != nullptr, "nn.register_full_backward_hook", "the hook is empty");
  return add(members_->backward_hooks, std::move(hook), options);
}

HookHandle Module::register_full_backward_pre_hook(BackwardPreHook hook,
                                                   const ForwardHookOptions& options) {
  TESSERA_CHECK(hook != nullptr, "nn.register_full_backward_pre_hook", "the hook is empty");
  return add(members_->backward_pre_hooks, std::move(hook), options);
}

StateDictHooks& Module::state_dict_hooks() { return members_->state_dict_hooks; }

void Module::run_pre_hooks(const VisitVariables& arguments) {
  trace_call(*this, *scope_name_, "forward");
  if (members_->pre_hooks.empty()) return;
  for (const auto& hook : members_->pre_hooks.snapshot()) hook(*this, arguments);
}

void Module::run_forward_hooks(const VisitVariables* results) {
  const ForwardEnd end(*this, *scope_name_);
  if (members_->forward_hooks.empty()) return;
  std::exception_ptr first;
  for (const auto& hook : members_->forward_hooks.snapshot()) {
    try {
      hook(*this, results);
    } catch (...) {
      if (!first && results != nullptr) first = std::current_exception();
      results = nullptr;  // for the hooks that follow, the call has failed
    }
  }
  if (first) std::rethrow_exception(first);
}

std::shared_ptr<detail::BackwardHookCall> Module::watch_arguments(const VisitVariables& arguments) {
  if (members_->backward_hooks.empty() && members_->backward_pre_hooks.empty()) return nullptr;
  // The graph may outlive the module: then its hooks are gone with it.
  const auto for_each_hook = [this, weak = std::weak_ptr<Children>(members_)](auto list,
                                                                              auto... gradients) {
    const auto members = weak.lock();
    if (!members) return;
    for (const auto& hook : ((*members).*list).snapshot()) hook(*this, gradients.get()...);
  };
  auto call = std::make_shared<detail::BackwardHookCall>(detail::BackwardHookCall::Callbacks{
      .on_results =
          [for_each_hook](Gradients& results) {
            for_each_hook(&Children::backward_pre_hooks, std::ref(results));
          },
      .on_arguments =
          [for_each_hook](Gradients& arguments, const Gradients& results) {
            for_each_hook(&Children::backward_hooks, std::ref(arguments), std::cref(results));
          }});
  call->watch_arguments(arguments);
  return call;
}

void Module::watch_results(const std::shared_ptr<detail::BackwardHookCall>& call,
                           const VisitVariables& results) {
  if (call) call->watch_results(results);
}

}  // namespace tessera::nn

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
