#include "tessera/nn/module.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>

#include "tessera/nn/unregistered.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

using PreHookList = HookList<void(Module&, const VisitVariables&)>;
using ForwardHookList = HookList<void(Module&, const VisitVariables*)>;

template <class List>
typename List::Position position(const ForwardHookOptions& options) {
  return options.first ? List::Position::kFirst : List::Position::kLast;
}

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

}  // namespace

struct Module::Children {
  // By address, so that tie() on a registered member counts; members do not move, because modules
  // do not.
  std::vector<std::pair<std::string, Parameter*>> parameters;
  std::vector<std::pair<std::string, Module*>> modules;
  PreHookList pre_hooks;
  ForwardHookList forward_hooks;
  std::map<std::type_index, std::shared_ptr<void>> extensions;

  bool is_taken(const std::string& name) const {
    const auto has_name = [&name](const auto& entry) { return entry.first == name; };
    return std::any_of(parameters.begin(), parameters.end(), has_name) ||
           std::any_of(modules.begin(), modules.end(), has_name);
  }
  void check_name(const std::string& name, const char* where, const Module& module) const {
    TESSERA_CHECK(!name.empty(), where, "a member of {} needs a name", module.type_name());
    TESSERA_CHECK(name.find('.') == std::string::npos, where,
                  "name \"{}\" of a member of {} has a dot; dots join the names of levels", name,
                  module.type_name());
    TESSERA_CHECK(!is_taken(name), where, "{} has a member \"{}\" already: choose another name",
                  module.type_name(), name);
  }

  static void collect(Module& module, const std::string& name, std::set<const Module*>& seen,
                      std::vector<NamedModule>& out) {
    if (!seen.insert(&module).second) return;
    out.push_back({name, &module});
    for (const auto& [child_name, child] : module.members_->modules) {
      collect(*child, joined(name, child_name), seen, out);
    }
  }
};

Module::Module() : members_(std::make_unique<Children>()) {
  detail::note_constructed(this, detail::MemberKind::kModule);
}

Module::~Module() { detail::forget_constructed(this); }

std::vector<NamedModule> Module::named_modules() {
  std::vector<NamedModule> out;
  std::set<const Module*> seen;
  Children::collect(*this, "", seen, out);
  return out;
}

std::vector<NamedParameter> Module::named_parameters() const {
  std::vector<NamedParameter> out;
  std::set<const void*> seen;
  // The walk only reads; its result is non-const because callers change the modules they are given.
  for (const NamedModule& module : const_cast<Module*>(this)->named_modules()) {
    for (const auto& [name, parameter] : module.module->members_->parameters) {
      if (!seen.insert(parameter->id()).second) continue;
      out.push_back({joined(module.name, name), *parameter});
    }
  }
  return out;
}

std::vector<Parameter> Module::parameters() const {
  std::vector<Parameter> out;
  for (const NamedParameter& named : named_parameters()) out.push_back(named.parameter);
  return out;
}

std::vector<NamedParameter> Module::own_parameters() const {
  std::vector<NamedParameter> out;
  std::set<const void*> seen;
  for (const auto& [name, parameter] : members_->parameters) {
    if (seen.insert(parameter->id()).second) out.push_back({name, *parameter});
  }
  return out;
}

std::vector<NamedModule> Module::children() {
  std::vector<NamedModule> out;
  for (const auto& [name, module] : members_->modules) out.push_back({name, module});
  return out;
}

void Module::train(bool on) {
  for (const NamedModule& named : named_modules()) named.module->training_ = on;
}

HookHandle Module::register_forward_pre_hook(ForwardPreHook hook,
                                             const ForwardHookOptions& options) {
  TESSERA_CHECK(hook != nullptr, "nn.register_forward_pre_hook", "the hook is empty");
  return members_->pre_hooks.add(std::move(hook), position<PreHookList>(options));
}

HookHandle Module::register_forward_hook(ForwardHook hook, const ForwardHookOptions& options) {
  TESSERA_CHECK(hook != nullptr, "nn.register_forward_hook", "the hook is empty");
  if (!options.always) {
    hook = [hook = std::move(hook)](Module& module, const VisitVariables* results) {
      if (results != nullptr) hook(module, results);
    };
  }
  return members_->forward_hooks.add(std::move(hook), position<ForwardHookList>(options));
}

void Module::register_module(std::string name, Module& child) {
  members_->check_name(name, "nn.register_module", *this);
  TESSERA_CHECK(&child != this, "nn.register_module", "{} cannot be its own child \"{}\"",
                type_name(), name);
  detail::forget_constructed(&child);
  child.scope_name_->set(name, scope_name_);
  members_->modules.emplace_back(std::move(name), &child);
}

void Module::register_parameter(std::string name, Parameter& parameter) {
  members_->check_name(name, "nn.register_parameter", *this);
  detail::forget_constructed(&parameter);
  if (parameter.name().empty()) parameter.set_name(name);
  members_->parameters.emplace_back(std::move(name), &parameter);
}

void Module::run_pre_hooks(const VisitVariables& arguments) {
  if (members_->pre_hooks.empty()) return;
  for (const auto& hook : members_->pre_hooks.snapshot()) hook(*this, arguments);
}

void Module::run_forward_hooks(const VisitVariables* results) {
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

void Module::attach_erased(std::type_index type, std::shared_ptr<void> extension) {
  members_->extensions.insert_or_assign(type, std::move(extension));
}

void* Module::attached_erased(std::type_index type) const {
  const auto found = members_->extensions.find(type);
  return found == members_->extensions.end() ? nullptr : found->second.get();
}

}  // namespace tessera::nn
