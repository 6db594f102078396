#pragma once

/// A node of a model: named parameters and child modules, and hooks around forward().
///
/// Derive from nn::Layer<Derived> (layer.h), not from Module. Children and parameters are members
/// of the derived class (or owned by a container), registered by name in the constructor; names
/// join with dots: "blocks.3.up.weight". Modules are neither copied nor moved: a twin is a second
/// construction plus copy_state(). Used by the thread of its rank.

#include <functional>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "tessera/autograd/hooks.h"
#include "tessera/nn/parameter.h"
#include "tessera/tensor/scope_name.h"

namespace tessera::nn {

class Module;

/// "Visit every Variable in here": how hooks reach arguments and results of any type, and may
/// replace them.
using VisitVariables = std::function<void(const std::function<void(Variable&)>&)>;
/// Before forward, with the arguments.
using ForwardPreHook = std::function<void(Module&, const VisitVariables& arguments)>;
/// After forward, with the results; `results` is null when forward threw (only hooks registered
/// with `always` see that).
using ForwardHook = std::function<void(Module&, const VisitVariables* results)>;

struct ForwardHookOptions {
  bool first = false;   ///< before the hooks there are; else after them
  bool always = false;  ///< forward hooks: also when forward, or a hook, threw
};

struct NamedParameter {
  std::string name;
  Parameter parameter;
};
struct NamedModule {
  std::string name;  ///< "" for the root
  Module* module;
};

class Module {
 public:
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// The class, for people: "Linear".
  virtual std::string type_name() const = 0;
  /// Address and size of the most derived object, by which initialize() finds members never
  /// registered.
  virtual std::pair<const void*, std::size_t> extent() const = 0;

  /// All parameters below, depth first in registration order (a module's own before those of its
  /// children), each once under its first name.
  std::vector<NamedParameter> named_parameters() const;
  std::vector<Parameter> parameters() const;
  /// This module's own, without its children's.
  std::vector<NamedParameter> own_parameters() const;
  /// This module ("") and all below, depth first, each once under its first name.
  std::vector<NamedModule> named_modules();
  std::vector<NamedModule> children();

  bool is_training() const { return training_; }
  void train(bool on = true);  ///< this module and all below
  void eval() { train(false); }

  HookHandle register_forward_pre_hook(ForwardPreHook hook, const ForwardHookOptions& options = {});
  HookHandle register_forward_hook(ForwardHook hook, const ForwardHookOptions& options = {});

  /// Extensions (a sharding state ...) that live as long as the module, one per type: a second of a
  /// type replaces the first. Null where there is none.
  template <class T>
  void attach(std::shared_ptr<T> extension) {
    attach_erased(typeid(T), std::move(extension));
  }
  template <class T>
  T* attached() const {
    return static_cast<T*>(attached_erased(typeid(T)));
  }

 protected:
  Module();
  /// Throws InvalidArgument for an empty name, one with a dot, or one that is taken.
  void register_module(std::string name, Module& child);
  void register_parameter(std::string name, Parameter& parameter);

  /// Where the module stands among those it is registered in; see scope_name.h.
  const ScopeName& scope_name() const { return *scope_name_; }

  /// The hook protocol around a call; see Layer.
  void run_pre_hooks(const VisitVariables& arguments);
  void run_forward_hooks(const VisitVariables* results);

 private:
  struct Children;
  void attach_erased(std::type_index type, std::shared_ptr<void> extension);
  void* attached_erased(std::type_index type) const;
  std::unique_ptr<Children> members_;
  std::shared_ptr<ScopeName> scope_name_ = make_scope_name();
  bool training_ = true;
};

/// Copies every parameter's local() from one model to its twin, which is materialised on the same
/// device where it is not yet. Throws InvalidArgument listing all names, shapes or specs that
/// differ, StateError when `from` is not materialised.
void copy_state(const Module& from, Module& to);

}  // namespace tessera::nn
