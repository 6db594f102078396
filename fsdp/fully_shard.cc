#include "tessera/fsdp/fully_shard.h"

#include <unordered_set>
#include <utility>

#include "tessera/fsdp/param_group.h"
#include "tessera/fsdp/runtime.h"
#include "tessera/tensor/check.h"

namespace tessera::fsdp {
namespace {

/// The parameters of a subtree that no inner call has claimed, depth first, named from the
/// subtree's root.
class ManagedParameters {
 public:
  void collect(nn::Module& module, const std::string& prefix) {
    if (!visited_.insert(&module).second) return;
    for (nn::NamedParameter& named : module.own_parameters()) {
      if (!visited_.insert(named.parameter.id()).second) continue;
      if (named.parameter.owner() == nullptr) named.parameter.set_name(prefix + named.name);
      parameters.push_back(std::move(named.parameter));
    }
    for (const nn::NamedModule& child : module.children()) {
      if (child.module->attached<ModuleState>() == nullptr)
        collect(*child.module, prefix + child.name + ".");
    }
  }

  std::vector<nn::Parameter> parameters;

 private:
  std::unordered_set<const void*> visited_;
};

}  // namespace

Handle fully_shard(nn::Module& module, const FullyShardOptions& options) {
  TESSERA_CHECK(options.mesh.defined(), "fsdp.fully_shard",
                "no mesh was given: set .mesh, for instance to world.mesh()");
  TESSERA_CHECK(options.mesh.ndim() == 1, "fsdp.fully_shard", "expected a mesh with 1 axis, got {}",
                options.mesh.ndim());
  TESSERA_CHECK_AS(StateError, module.attached<ModuleState>() == nullptr, "fsdp.fully_shard",
                   "{} is sharded already; fully_shard can only be applied once to a module",
                   module.type_name());
  ManagedParameters managed;
  managed.collect(module, "");
  std::shared_ptr<ParamGroup> group;
  if (!managed.parameters.empty()) {
    group = ParamGroup::create(module.type_name(), std::move(managed.parameters), options.mesh);
  }
  const auto state = std::make_shared<ModuleState>(module, options, std::move(group));
  module.attach(state);
  state->install();
  return Handle(*state);
}

Handle of(const nn::Module& module) {
  ModuleState* state = module.attached<ModuleState>();
  TESSERA_CHECK_AS(StateError, state != nullptr, "fsdp.of",
                   "no FSDP state on {}: call fully_shard on it first", module.type_name());
  return Handle(*state);
}

void Handle::unshard() const { state_->unshard_by_hand(); }

void Handle::reshard() const { state_->reshard_by_hand(); }

void Handle::set_prefetch(const PrefetchOptions& options) const {
  state_->tree().comm.prefetch = options;
}

void Handle::set_max_reduces_in_flight(int count) const {
  TESSERA_CHECK(count >= 0, "fsdp.set_max_reduces_in_flight", "expected at least 0, got {}", count);
  state_->tree().comm.max_reduces_in_flight = count;
}

void Handle::discard_pending_gradients() const {
  for (const nn::NamedModule& named : state_->module().named_modules()) {
    const ModuleState* state = named.module->attached<ModuleState>();
    if (state && state->group()) state->group()->discard_pending_gradients();
  }
}

bool Handle::has_group() const { return state_->group() != nullptr; }

std::string Handle::group_name() const {
  return state_->group() ? state_->group()->group_name() : state_->module().type_name();
}

std::vector<std::string> Handle::parameter_names() const {
  std::vector<std::string> names;
  if (!state_->group()) return names;
  for (const ShardedParameter& parameter : state_->group()->parameters())
    names.push_back(parameter.parameter().name());
  return names;
}

}  // namespace tessera::fsdp
