#include "tessera/fsdp/fully_shard.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tessera/fsdp/attach.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/fsdp/runtime/activations.h"
#include "tessera/fsdp/runtime/module_state.h"
#include "tessera/fsdp/runtime/param_group.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {
namespace {

constexpr const char* kWhere = "fsdp.fully_shard";

/// The modules and parameters that a call manages: depth first, without modules that have a state.
class Managed {
 public:
  explicit Managed(const FullyShardOptions& options) : options_(options) {
    for (const nn::Parameter& each : options.ignored_parameters) visited_.insert(each.id());
    for (nn::Module* module : options.ignored_modules) {
      TESSERA_CHECK(module != nullptr, kWhere, "ignored_modules has a null module");
      for (const nn::NamedModule& named : module->named_modules()) visited_.insert(named.module);
      for (const nn::Parameter& each : module->parameters()) visited_.insert(each.id());
    }
  }

  void collect(nn::Module& module, const std::string& prefix, bool exempt) {
    if (!visited_.insert(&module).second) return;
    modules.push_back(&module);
    const auto& is_exempt = options_.mixed_precision.exempt;
    if (!exempt && is_exempt && is_exempt(module)) {
      exempt = true;
      exempt_roots.push_back(&module);
    }
    if (exempt) exempt_modules.insert(&module);
    for (nn::NamedParameter& named : module.own_parameters()) {
      if (!visited_.insert(named.parameter.id()).second) continue;
      std::string name = prefix + named.name;
      if (named.parameter.owner() == nullptr) named.parameter.set_name(name);
      parameters.push_back(
          {.parameter = std::move(named.parameter), .name = std::move(name), .exempt = exempt});
    }
    for (const nn::NamedModule& child : module.children()) {
      if (ModuleState::of(*child.module) == nullptr)
        collect(*child.module, prefix + child.name + ".", exempt);
    }
  }

  std::vector<nn::Module*> modules;
  std::vector<nn::Module*> exempt_roots;
  std::unordered_set<const nn::Module*> exempt_modules;
  std::vector<ManagedParameter> parameters;

 private:
  const FullyShardOptions& options_;
  std::unordered_set<const void*> visited_;
};

std::string names_of(const std::vector<nn::Module*>& modules) {
  std::string names;
  for (const nn::Module* module : modules)
    names += (names.empty() ? "" : ", ") + module->type_name();
  return names;
}

void check_module(const nn::Module* module, Kind kind) {
  TESSERA_CHECK(module != nullptr, kWhere, "a module of the list is null");
  TESSERA_CHECK(!module->is_container(), kWhere,
                "{} is a container without a forward, around which nothing would run: {} its "
                "elements, or the module that holds it",
                module->type_name(), kind == Kind::kReplicate ? "replicate" : "shard");
  const ModuleState* state = ModuleState::of(*module);
  TESSERA_CHECK_AS(StateError, state == nullptr, kWhere,
                   "{} has {} applied already; fully_shard or replicate can be applied to a module "
                   "once",
                   module->type_name(), kind_name(state ? state->kind() : kind));
}

void check_options(const FullyShardOptions& options, Kind kind, const std::string& names) {
  TESSERA_CHECK(options.mesh.defined(), kWhere,
                "{}: no mesh was given: set .mesh, for instance to world.mesh()", names);
  const int ndim = options.mesh.ndim();
  if (kind == Kind::kReplicate) {
    TESSERA_CHECK(ndim == 1, kWhere, "{}: replicate expects a mesh with 1 axis, got {}", names,
                  ndim);
  } else {
    TESSERA_CHECK(ndim == 1 || ndim == 2, kWhere,
                  "{}: expected a mesh with 1 axis (shards) or 2 (replicas, shards), got {}", names,
                  ndim);
  }
  TESSERA_CHECK(!options.shard_optimizer_over_replicas || ndim == 2, kWhere,
                "{}: shard_optimizer_over_replicas needs a mesh of 2 axes", names);
  const MixedPrecision& precision = options.mixed_precision;
  for (const auto& dtype : {precision.param_dtype, precision.reduce_dtype, precision.output_dtype,
                            precision.buffer_dtype}) {
    TESSERA_CHECK(!dtype || is_floating(*dtype), kWhere,
                  "{}: mixed precision takes floating dtypes, not {}", names, dtype_name(*dtype));
  }
  TESSERA_CHECK(!precision.exempt || precision.param_dtype, kWhere,
                "{}: mixed_precision.exempt has nothing to exempt from: set param_dtype", names);
  TESSERA_CHECK(
      !precision.keep_low_precision_gradients || precision.param_dtype || precision.reduce_dtype,
      kWhere,
      "{}: keep_low_precision_gradients has nothing to keep: set param_dtype or "
      "reduce_dtype",
      names);
}

// The modules that no other module of the list contains.
std::vector<nn::Module*> outermost(const std::vector<nn::Module*>& modules) {
  std::vector<nn::Module*> out;
  for (nn::Module* module : modules) {
    const bool inside = std::any_of(modules.begin(), modules.end(), [&](nn::Module* other) {
      if (other == module) return false;
      const auto below = other->named_modules();
      return std::any_of(below.begin(), below.end(),
                         [&](const nn::NamedModule& named) { return named.module == module; });
    });
    if (!inside && std::find(out.begin(), out.end(), module) == out.end()) out.push_back(module);
  }
  return out;
}

// Exempt modules compute in the stored dtype; their results are cast back for the modules around.
void cast_around(nn::Module& module, const MixedPrecision& precision) {
  const DType outside = *precision.param_dtype;
  const auto inside = [](nn::Module& self) -> std::optional<DType> {
    for (const nn::Parameter& parameter : self.parameters()) return parameter.dtype();
    for (const nn::NamedBuffer& named : self.named_buffers()) {
      if (is_floating(named.buffer.dtype())) return named.buffer.dtype();
    }
    return std::nullopt;
  };
  module.register_forward_pre_hook([inside](nn::Module& self, const nn::VisitVariables& arguments) {
    if (const auto dtype = inside(self)) cast_variables(arguments, *dtype);
  });
  module.register_forward_hook([outside](nn::Module&, const nn::VisitVariables* results) {
    cast_variables(*results, outside);
  });
}

// Buffers are computed with in another dtype, but saved and loaded in the stored dtype.
void convert_buffers(nn::Module& module, const FullyShardOptions& options) {
  const Device device = options.mesh.device();
  for (nn::NamedBuffer& named : module.own_buffers()) {
    nn::Buffer& buffer = named.buffer;
    const DType stored = buffer.dtype();
    const auto& wanted = options.mixed_precision.buffer_dtype;
    const bool converts = wanted && is_floating(stored) && !buffer.keeps_dtype();
    if (buffer.is_materialized() || converts) buffer.to(device, converts ? *wanted : stored);
    if (!converts || *wanted == stored || !buffer.is_persistent()) continue;
    module.state_dict_hooks().after_save.add(
        [name = named.name, stored](nn::Module&, nn::StateDict& state, const std::string& prefix) {
          const nn::StateValue* value = state.find(prefix + name);
          const auto* tensor = value ? std::get_if<Tensor>(value) : nullptr;
          if (tensor) state.set(prefix + name, cast(*tensor, stored));
        });
  }
}

}  // namespace

Handle attach(const std::vector<nn::Module*>& modules, const FullyShardOptions& options,
              Kind kind) {
  TESSERA_CHECK(!modules.empty(), kWhere, "the list of modules is empty");
  for (const nn::Module* module : modules) check_module(module, kind);
  const std::vector<nn::Module*> roots = outermost(modules);
  const std::string names = names_of(roots);
  check_options(options, kind, names);
  Managed managed(options);
  for (nn::Module* root : roots) managed.collect(*root, "", /*exempt=*/false);
  std::shared_ptr<ParamGroup> group;
  if (!managed.parameters.empty()) {
    group = ParamGroup::create(
        {.name = names, .kind = kind, .parameters = std::move(managed.parameters)}, options);
  }
  for (nn::Module* module : managed.modules) {
    FullyShardOptions own = options;
    if (managed.exempt_modules.count(module) != 0) own.mixed_precision.buffer_dtype.reset();
    convert_buffers(*module, own);
  }
  for (nn::Module* module : managed.exempt_roots) cast_around(*module, options.mixed_precision);
  const auto state =
      std::make_shared<ModuleState>(ModuleState::Parts{.kind = kind,
                                                       .modules = roots,
                                                       .managed = std::move(managed.modules),
                                                       .group = std::move(group)},
                                    options);
  state->install();
  return Handle(*state);
}

Handle fully_shard(nn::Module& module, const FullyShardOptions& options) {
  return attach({&module}, options, Kind::kFullyShard);
}

Handle fully_shard(const std::vector<nn::Module*>& modules, const FullyShardOptions& options) {
  return attach(modules, options, Kind::kFullyShard);
}

Handle replicate(nn::Module& module, const ReplicateOptions& options) {
  return replicate(std::vector<nn::Module*>{&module}, options);
}

Handle replicate(const std::vector<nn::Module*>& modules, const ReplicateOptions& options) {
  return attach(modules,
                {.mesh = options.mesh,
                 .mixed_precision = options.mixed_precision,
                 .offload = options.offload,
                 .ignored_parameters = options.ignored_parameters,
                 .ignored_modules = options.ignored_modules},
                Kind::kReplicate);
}

}  // namespace tessera::fsdp
