// load_full_state_dict.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/fsdp/state/state.h"
#include "tessera/fsdp/state/state_entries.h"
#include "tessera/fsdp/state/state_load_plan.h"
#include "tessera/fsdp/state/whole_values.h"
#include "tessera/nn/module_members.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/random.h"

namespace tessera::fsdp {
namespace {

using distributed::DeviceMesh;

constexpr const char* kLoad = "fsdp.load_full_state_dict";

// The caller's dict after the before_load hooks.
nn::StateDict prepared(const std::vector<nn::NamedModule>& modules, const nn::StateDict& state) {
  nn::StateDict out = state;
  for (const nn::NamedModule& named : modules) {
    const std::string prefix = named.name.empty() ? "" : named.name + ".";
    for (const auto& hook : named.module->state_dict_hooks().before_load.snapshot()) {
      hook(*named.module, out, prefix);
    }
  }
  return out;
}

[[noreturn]] void throw_problems(const nn::Module& module, const std::vector<std::string>& problems,
                                 bool lenient_helps) {
  throw_error<InvalidArgument>(
      kLoad, "the state does not fit {}: {}{}", module.type_name(), fmt::join(problems, "; "),
      lenient_helps ? "; load with .strict = false to take what is there" : "");
}

// Throws for misfits, and for missing or unexpected names if `with_names`.
void judge(const nn::Module& module, const LoadVerdict& verdict, bool with_names) {
  std::vector<std::string> problems = verdict.misfits;
  const auto add = [&](const std::vector<std::string>& names, const char* what) {
    for (const std::string& name : names) {
      const auto found = verdict.descriptions.find(name);
      problems.push_back(fmt::format(
          "\"{}\"{} is {}", name,
          found == verdict.descriptions.end() ? std::string() : fmt::format(" ({})", found->second),
          what));
    }
  };
  if (with_names) {
    add(verdict.report.missing, "missing");
    add(verdict.report.unexpected, "unexpected");
  }
  if (!problems.empty()) {
    throw_problems(module, problems, problems.size() > verdict.misfits.size());
  }
}

// Also names members that are missing in the dict, so that errors can name them.
void name_members(nn::Module& module) {
  for (nn::NamedParameter& named : module.named_parameters()) {
    if (!named.parameter.is_materialized()) named.parameter.set_name(named.name);
  }
  for (nn::NamedBuffer& named : module.named_buffers()) {
    if (!named.buffer.is_materialized()) named.buffer.set_name(named.name);
  }
}

void compute_buffers(nn::Module& module, Device device, std::uint64_t seed) {
  for (nn::NamedBuffer& named : module.named_buffers()) {
    if (named.buffer.is_persistent()) continue;
    named.buffer.materialize(device);
    named.buffer.reset(random::named_key(seed, named.buffer.name()));
  }
}

}  // namespace

nn::LoadReport load_full_state_dict(nn::Module& module, const nn::StateDict& state,
                                    const LoadFullStateOptions& options) {
  nn::detail::check_all_registered(module, kLoad);
  const DeviceMesh mesh = options.broadcast_from_rank0
                              ? mesh_of_load(options.mesh, module.parameters(), kLoad)
                              : DeviceMesh();
  const Device mesh_device = mesh.defined() ? mesh.device() : kCpu;
  const Device device = options.device.value_or(mesh_device);
  const MeshRanks ranks(mesh);
  const std::vector<nn::NamedModule> modules = module.named_modules();
  const std::vector<StateEntry> entries =
      share_entries(ranks.is_first() ? prepared(modules, state) : nn::StateDict(), ranks);
  const FullLoadPlan plan(module, entries, device);
  LoadVerdict verdict = plan.verdict(ranks);
  // Hooks that run after the load may remove names from the report.
  const bool forgives = std::any_of(modules.begin(), modules.end(), [](const auto& named) {
    return !named.module->state_dict_hooks().after_load.empty();
  });
  judge(module, verdict, options.strict && !forgives);
  name_members(module);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& unknown = verdict.report.unexpected;
    if (std::find(unknown.begin(), unknown.end(), entries[i].name) != unknown.end()) continue;
    plan.copy(i, share_tensor(*entries[i].tensor(), ranks, mesh_device, entries[i].name));
  }
  compute_buffers(module, device, options.seed);
  for (const nn::NamedModule& named : modules) {
    for (const auto& hook : named.module->state_dict_hooks().after_load.snapshot()) {
      hook(*named.module, verdict.report);
    }
  }
  judge(module, verdict, options.strict);
  return verdict.report;
}

namespace {

// load_full_optimizer_state.

using distributed::DeviceMesh;

constexpr const char* kWhere = "fsdp.load_full_optimizer_state";

// Parameters by the prefix of their states' names: "state.up.weight.".
using ByPrefix = std::map<std::string, nn::Parameter>;

ByPrefix by_prefix(const nn::optim::Optimizer& optimizer) {
  ByPrefix out;
  for (const nn::Parameter& parameter : optimizer.parameters()) {
    out.emplace("state." + parameter.name() + ".", parameter);
  }
  return out;
}

// Null if the tensor is not the state of a parameter.
const nn::Parameter* owner_of(const StateEntry& entry, const ByPrefix& parameters) {
  const auto found = parameters.find(entry.name.substr(0, entry.name.rfind('.') + 1));
  return found == parameters.end() ? nullptr : &found->second;
}

// Empty if there is no problem. The optimizer would detect parts of the wrong shape, but not full
// tensors of the wrong shape.
std::string problem_of(const StateEntry& entry, const ByPrefix& parameters) {
  const TensorEntry* tensor = entry.tensor();
  if (tensor == nullptr) return {};
  const nn::Parameter* parameter = owner_of(entry, parameters);
  if (parameter == nullptr) return fmt::format("{} belongs to no parameter here", entry.name);
  const Shape& whole = parameter->spec().global_shape;
  if (tensor->shape != whole) {
    return fmt::format("{} has shape {}, and the parameter {}", entry.name, tensor->shape.str(),
                       whole.str());
  }
  const bool is_null = parameter->local().device().is_null();
  return tensor->has_elements || is_null
             ? std::string()
             : fmt::format("{} is on the null device: it has no elements", entry.name);
}

Tensor take_part(const StateEntry& entry, const nn::Parameter& parameter, const MeshRanks& ranks,
                 Device device) {
  const Tensor whole = share_tensor(*entry.tensor(), ranks, device, entry.name);
  const MemoryCategoryScope category(MemoryCategory::kOptimizer);
  const Variable& local = parameter.local();
  const Tensor part =
      Tensor::empty(local.shape(), {.dtype = entry.tensor()->dtype, .device = local.device()});
  copy_from_whole(parameter, part, whole);
  return part;
}

}  // namespace

void load_full_optimizer_state(nn::optim::Optimizer& optimizer, const nn::StateDict& state,
                               const LoadFullOptimizerStateOptions& options) {
  const DeviceMesh mesh = options.broadcast_from_rank0
                              ? mesh_of_load(options.mesh, optimizer.parameters(), kWhere)
                              : DeviceMesh();
  const Device device = mesh.defined() ? mesh.device() : kCpu;
  const MeshRanks ranks(mesh);
  const std::vector<StateEntry> entries = share_entries(state, ranks);
  const ByPrefix parameters = by_prefix(optimizer);
  std::vector<std::string> problems;
  for (const StateEntry& entry : entries) {
    const std::string problem = problem_of(entry, parameters);
    if (!problem.empty()) problems.push_back(problem);
  }
  TESSERA_CHECK(problems.empty(), kWhere, "the state does not fit this {}: {}",
                optimizer.type_name(), fmt::join(problems, "; "));
  nn::StateDict local;
  for (const StateEntry& entry : entries) {
    const nn::Parameter* parameter = owner_of(entry, parameters);
    if (entry.tensor() == nullptr) {
      local.set(entry.name, std::get<nn::StateValue>(entry.value));
    } else {
      local.set(entry.name, take_part(entry, *parameter, ranks, device));
    }
  }
  optimizer.load_state_dict(local);
}

}  // namespace tessera::fsdp
