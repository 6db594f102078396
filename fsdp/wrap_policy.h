#pragma once

/// Sharding by rule: which modules of a model become groups of their own.
///
///     fsdp::wrap(model, fsdp::wrap_types<Block, nn::Embedding>(), {.mesh = world.mesh()});
///     fsdp::fully_shard(model, {.mesh = world.mesh()});     // the rest: always the caller's call
///
/// wrap() makes the calls of fully_shard that one would write by hand, and nothing else. It walks
/// the model depth first, children from left to right and before their parents, and calls the
/// policy once for each module. It skips the model itself, containers without a forward, and
/// ignored modules. It does not enter modules that already have a state: some modules may be
/// sharded by hand before it, and several policies may run one after another.
///
/// All ranks make the same call. Policies count the elements of full parameters, so all ranks make
/// the same choices.

#include <concepts>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/fsdp/options.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

// Adapts options for a whole model to a call on one of its modules. Used by the files that make
// such calls: wrap_policy and wrap_defaults. Header only.

/// The options that a call takes from the whole model's options.
struct Inherited {
  distributed::DeviceMesh mesh;  ///< used if the call's own options have no mesh
  std::vector<nn::Parameter> ignored_parameters;
  std::vector<nn::Module*> ignored_modules;
};

/// `given`, for a call on `module`: with the inherited mesh if it has none, and with the ignored
/// parameters and modules of both lists that are at or below the module.
template <class Options>
Options options_inside(nn::Module& module, const Options& given, const Inherited& from) {
  std::set<const void*> inside, taken;
  for (const nn::NamedModule& named : module.named_modules()) inside.insert(named.module);
  for (const nn::Parameter& parameter : module.parameters()) inside.insert(parameter.id());

  std::vector<nn::Parameter> parameters;
  std::vector<nn::Module*> modules;
  for (const auto* list : {&given.ignored_parameters, &from.ignored_parameters}) {
    for (const nn::Parameter& parameter : *list) {
      if (inside.contains(parameter.id()) && taken.insert(parameter.id()).second)
        parameters.push_back(parameter);
    }
  }
  for (const auto* list : {&given.ignored_modules, &from.ignored_modules}) {
    for (nn::Module* ignored : *list) {
      if (inside.contains(ignored) && taken.insert(ignored).second) modules.push_back(ignored);
    }
  }
  Options out = given;
  if (!out.mesh.defined()) out.mesh = from.mesh;
  out.ignored_parameters.swap(parameters);
  out.ignored_modules.swap(modules);
  return out;
}

/// A policy's input.
struct WrapCandidate {
  nn::Module& module;
  std::string name;  ///< qualified, within the model
  /// Elements of the parameters at and below the module that no group owns and that are not
  /// ignored, each parameter once: the size of the group that the module would get.
  std::int64_t free_elements = 0;
};

/// A policy's decision.
class WrapAnswer {
 public:
  /// false: do not wrap. true: wrap with the options that were given to wrap().
  template <std::same_as<bool> Bool>
  WrapAnswer(Bool yes) : value_(yes) {}  // NOLINT(*-explicit-*)
  /// Wrap with this call and these options. A missing mesh is taken from wrap(), and the parameters
  /// and modules that wrap() ignores stay ignored.
  WrapAnswer(FullyShardOptions own) : value_(std::move(own)) {}  // NOLINT(*-explicit-*)
  WrapAnswer(ReplicateOptions own) : value_(std::move(own)) {}   // NOLINT(*-explicit-*)

  using Value = std::variant<bool, FullyShardOptions, ReplicateOptions>;
  const Value& value() const { return value_; }
  bool is_no() const { return std::holds_alternative<bool>(value_) && !std::get<bool>(value_); }

 private:
  Value value_;
};

struct WrapPolicy {
  std::function<WrapAnswer(const WrapCandidate&)> decide;  ///< required
  /// True: the walk does not enter the module; the policy still decides about it. Null: never.
  std::function<bool(const nn::Module&)> is_leaf = {};
};

/// Wraps modules of these classes, or of classes derived from them.
template <class... Types>
WrapPolicy wrap_types() {
  static_assert(sizeof...(Types) > 0 && (std::is_polymorphic_v<Types> && ...),
                "wrap_types<Block, nn::Embedding>(): the classes of the modules to wrap");
  return {.decide = [](const WrapCandidate& candidate) -> WrapAnswer {
    return (... || (dynamic_cast<const Types*>(&candidate.module) != nullptr));
  }};
}

struct WrapBySizeOptions {
  std::int64_t min_elements = 100'000'000;  ///< >= 1
  /// Modules not to enter. Null: nn::MultiheadAttention, which reads its projection without calling
  /// it.
  std::function<bool(const nn::Module&)> is_leaf = {};
};
/// Wraps modules whose group would have at least that many elements, after their children were
/// decided. Throws InvalidArgument for min_elements below 1.
WrapPolicy wrap_by_size(const WrapBySizeOptions& options = {});

/// Wraps modules for which the function says so. Throws InvalidArgument for an empty function.
WrapPolicy wrap_if(std::function<WrapAnswer(const WrapCandidate&)> function);
/// Wraps every module, even one that has nothing of its own to shard.
WrapPolicy wrap_always();
/// Takes the first decision, in the given order, that is not "no". A leaf of one policy is a leaf
/// for all. Throws InvalidArgument for an empty list, and for a policy without a decide function.
WrapPolicy wrap_any_of(std::vector<WrapPolicy> policies);

/// Applies the policy below `model`. Returns the modules that got a state, in the order of the
/// calls. Each call gets those of options.ignored_* that are inside its module.
///
/// With mixed precision (param_dtype or buffer_dtype of `options`) each batch norm becomes a group
/// of its own without mixed precision, whatever the policy says: its statistics need the stored
/// dtype. It accepts 16-bit arguments as they are. Exceptions: batch norms below a leaf, which the
/// walk does not reach; those for which the policy returns options of its own; and those named by
/// options.mixed_precision.exempt.
///
/// Throws InvalidArgument for a policy without a decide function, StateError for a model that
/// itself has a state, and the errors of fully_shard and replicate. Calls made before an error
/// remain in effect.
std::vector<nn::Module*> wrap(nn::Module& model, const WrapPolicy& policy,
                              const FullyShardOptions& options);
/// The same with calls of replicate.
std::vector<nn::Module*> wrap_replicate(nn::Module& model, const WrapPolicy& policy,
                                        const ReplicateOptions& options);

// Sharding while a model is built: a scope holds the options, and constructors choose the modules.
//
//     Net::Net() : up_({...}), down_({...}) {
//       register_module("up", fsdp::wrap_here(up_));        // a group, if there is a scope
//       register_module("down", down_);                     // its parent's
//     }
//     ...
//     const fsdp::WrapDefaults scope({.mesh = world.mesh()});
//     Net net;                                              // the same class, sharded
//     fsdp::fully_shard(net, {.mesh = world.mesh()});
//
// Outside a scope wrap_here() does nothing, so one class serves both uses. Constructors of inner
// modules run before those of outer ones, which is the order that sharding needs.

/// Until the end of the scope, wrap_here() on this thread shards with these options. Nesting scopes
/// throws StateError.
class WrapDefaults {
 public:
  explicit WrapDefaults(FullyShardOptions options);
  ~WrapDefaults();
  WrapDefaults(const WrapDefaults&) = delete;
  WrapDefaults& operator=(const WrapDefaults&) = delete;

 private:
  FullyShardOptions options_;
};

/// Changes a copy of the scope's options for one module.
using WrapOverrides = std::function<void(FullyShardOptions&)>;

namespace detail {
void wrap_here(nn::Module& module, const WrapOverrides& overrides);
}  // namespace detail

/// Calls fully_shard with the options of this thread's scope. Does nothing outside a scope, or if
/// the scope ignores the module. Returns the module. Throws the errors of fully_shard.
///
///     wrap_here(head_, [](auto& options) { options.reshard_after_forward = false; })
template <class M>
M& wrap_here(M& module, const WrapOverrides& overrides = {}) {
  detail::wrap_here(module, overrides);
  return module;
}

}  // namespace tessera::fsdp
