#pragma once

/// A node of a model: named parameters, buffers and child modules, and hooks around forward().
///
/// Derive from nn::Layer<Derived> (layer.h), not from Module. Children, parameters and buffers are
/// members of the derived class (or owned by a container), registered by name in the constructor;
/// names join with dots: "blocks.3.up.weight". Modules are neither copied nor moved: to duplicate
/// one, construct a second one and call copy_state(). Used by the thread of its rank.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "tessera/autograd/graph.h"
#include "tessera/autograd/hooks.h"
#include "tessera/nn/buffer.h"
#include "tessera/nn/parameter.h"
#include "tessera/nn/state/state_dict.h"
#include "tessera/nn/visit.h"
#include "tessera/tensor/scope_name.h"

namespace tessera::nn {

class Module;
namespace detail {
class BackwardHookCall;
}

/// Before forward, with the arguments.
using ForwardPreHook = std::function<void(Module&, const VisitVariables& arguments)>;
/// After forward, with the results; `results` is null when forward threw (only hooks registered
/// with `always` see that).
using ForwardHook = std::function<void(Module&, const VisitVariables* results)>;

struct ForwardHookOptions {
  bool first = false;   ///< before the hooks there are; else after them
  bool always = false;  ///< forward hooks only: also when forward, or a hook, threw
};

struct NamedParameter {
  std::string name;
  Parameter parameter;
};
struct NamedBuffer {
  std::string name;
  Buffer buffer;
};
struct NamedModule {
  std::string name;  ///< "" for the root
  Module* module;
};

/// A call's gradients have arrived: one per Variable in its arguments (undefined where none is
/// needed; may be replaced by one of the same shape) and per Variable in its results.
using BackwardHook =
    std::function<void(Module&, Gradients& argument_gradients, const Gradients& result_gradients)>;
/// Before that: the gradients of the results alone, which may be replaced.
using BackwardPreHook = std::function<void(Module&, Gradients& result_gradients)>;

/// Hooks around state_dict() and load_state_dict() of module_state.h; `prefix` is the module's name
/// with a dot at its end, "" for the root. Each module's hooks run in order, parents first.
struct StateDictHooks {
  /// Before the module's own entries are put in: the last chance to bring them up to date.
  HookList<void(Module&, const std::string& prefix)> before_save;
  /// After its entries and its children's: may add, change or erase what stands under `prefix`.
  HookList<void(Module&, StateDict& state, const std::string& prefix)> after_save;
  /// Before anything is compared: may rename or convert entries of the dict to be loaded, which is
  /// a copy of the caller's.
  HookList<void(Module&, StateDict& state, const std::string& prefix)> before_load;
  /// After everything was loaded; may edit the report, which then decides whether a strict load
  /// throws.
  HookList<void(Module&, LoadReport& report)> after_load;
};

class Module {
 public:
  virtual ~Module();
  /// Neither copied nor moved. Without const, because nn::Linear({3, 4}) could mean a copy of
  /// Linear(3, 4) otherwise, and be ambiguous.
  Module(Module&) = delete;
  void operator=(const Module&) = delete;  ///< another head: build that model, load with .only
  void operator()(const auto&...) const = delete;  ///< nn::Layer has it; list.as<Block>()
  void to(const char* device) = delete;            ///< model.to({DeviceType::kCuda})
  /// PyTorch's methods that are functions here, or have another name.
  void cpu(const auto&...) const = delete;              ///< model.to(kCpu)
  void cuda(const auto&...) const = delete;             ///< model.to({DeviceType::kCuda})
  void load_state_dict(const auto&...) const = delete;  ///< nn::load_state_dict(model, state)
  void requires_grad_(const auto&...) const = delete;   ///< nn::freeze(model, "**")
  void state_dict(const auto&...) const = delete;       ///< nn::state_dict(model)
  void zero_grad(const auto&...) const = delete;        ///< optimizer.zero_grad()

  /// The class, for people: "Linear".
  virtual std::string type_name() const = 0;  ///< nn::Layer<Net> has it: derive from that
  /// Address and size of the most derived object, by which initialize() finds members never
  /// registered.
  virtual std::pair<const void*, std::size_t> extent() const = 0;

  /// All parameters below, depth first in registration order (a module's own before those of its
  /// children), each once under its first name.
  std::vector<NamedParameter> named_parameters() const;
  std::vector<Parameter> parameters() const;
  /// This module's own, without its children's.
  std::vector<NamedParameter> own_parameters() const;
  /// Buffers likewise, persistent or not.
  std::vector<NamedBuffer> named_buffers() const;
  std::vector<NamedBuffer> own_buffers() const;
  /// This module ("") and all below, depth first, each once under its first name.
  std::vector<NamedModule> named_modules();
  std::vector<NamedModule> children();
  /// This module's own name from the outermost module that it is registered in: "blocks.3"; "" for
  /// that one. The last registration counts.
  std::string path() const { return scope_name_->path(); }
  /// Find a member by any of its qualified names; "" is this module. Throw InvalidArgument that
  /// names the last module found and its members.
  Module& get_submodule(const std::string& name);
  Parameter get_parameter(const std::string& name);
  Buffer get_buffer(const std::string& name);
  /// True for lists and maps of modules that are never called themselves.
  virtual bool is_container() const { return false; }

  bool is_training() const { return training_; }
  void train(bool on = true);  ///< this module and all below
  void eval() { train(false); }

  /// Moves every parameter, gradient and buffer below to a device, and floating ones to a dtype;
  /// integer buffers, and those built with keep_dtype, keep theirs. Handles stay valid: an
  /// optimizer that holds them goes on, but state of its own in another dtype or place does not
  /// follow. Parameters that are not materialised yet will be
  /// allocated on that device, in that dtype. A model may be
  /// converted after it was sharded, between steps. Throws what the sharding layer and moving
  /// throw; then nothing has changed but what was converted before.
  void to(Device device);
  void to(DType dtype);
  void to(Device device, DType dtype);
  void half() { to(DType::kF16); }
  void bfloat16() { to(DType::kBF16); }
  /// Calls `function` on every module below, children before their parents, each once.
  void apply(const std::function<void(Module&)>& function);

  HookHandle register_forward_pre_hook(ForwardPreHook hook, const ForwardHookOptions& options = {});
  HookHandle register_forward_hook(ForwardHook hook, const ForwardHookOptions& options = {});
  /// See BackwardHook. Runs once for each call of the module that a backward pass comes through,
  /// when the gradients of all its arguments are complete; when none of them needs one, when those
  /// of the results are. Calls made while grad mode is off have no backward.
  HookHandle register_full_backward_hook(BackwardHook hook, const ForwardHookOptions& options = {});
  HookHandle register_full_backward_pre_hook(BackwardPreHook hook,
                                             const ForwardHookOptions& options = {});
  StateDictHooks& state_dict_hooks();

  /// See nn::recompute of recompute.h.
  bool is_recomputed() const { return recomputed_; }
  void set_recomputed(bool on) { recomputed_ = on; }

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
  void register_buffer(std::string name, Buffer& buffer);

  /// Where the module stands among those it is registered in; see scope_name.h.
  const ScopeName& scope_name() const { return *scope_name_; }

  /// The hook protocol around a call; see Layer.
  void run_pre_hooks(const VisitVariables& arguments);
  void run_forward_hooks(const VisitVariables* results);
  /// Around forward, inside the forward hooks' replacements: the graph that the backward hooks wait
  /// in. The first returns null if there are none.
  std::shared_ptr<detail::BackwardHookCall> watch_arguments(const VisitVariables& arguments);
  static void watch_results(const std::shared_ptr<detail::BackwardHookCall>& call,
                            const VisitVariables& results);
  /// Expires with the module: for graphs, which may outlive it.
  std::weak_ptr<const void> alive() const { return members_; }

 private:
  struct Children;
  void attach_erased(std::type_index type, std::shared_ptr<void> extension);
  void* attached_erased(std::type_index type) const;
  template <class Named>
  static std::vector<Named> collect_members(const std::vector<NamedModule>& modules);
  template <class Member>
  Member get_member(const std::string& name, const char* where, const char* kind);
  void check_name(const std::string& name, const char* where) const;
  void convert(std::optional<Device> device, std::optional<DType> dtype);
  std::shared_ptr<Children> members_;  // the only owner
  std::shared_ptr<ScopeName> scope_name_ = make_scope_name();
  bool training_ = true;
  bool recomputed_ = false;
};

/// Copies every parameter's local() and every buffer from one model to an equally constructed one,
/// which keeps its devices and dtypes, and is materialised on the same device where it is not yet.
/// Throws InvalidArgument listing all names, shapes or specs that differ, StateError when `from` is
/// not materialised.
void copy_state(const Module& from, Module& to);

}  // namespace tessera::nn
