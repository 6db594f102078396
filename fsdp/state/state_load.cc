// load_full_state_dict.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/fsdp/state/load_entries.h"
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

}  // namespace

nn::LoadReport load_full_state_dict(nn::Module& module, const nn::StateDict& state,
                                    const LoadFullStateOptions& options) {
  nn::detail::check_all_registered(module, kLoad);
  const DeviceMesh mesh = options.broadcast_from_rank0
                              ? mesh_of_load(options.mesh, module.parameters(), kLoad)
                              : DeviceMesh();
  const Device mesh_device = mesh.defined() ? mesh.device() : kCpu;
  const MeshRanks ranks(mesh);
  const std::vector<StateEntry> entries =
      share_entries(ranks.is_first() ? before_load(module, state) : nn::StateDict(), ranks);
  return load_entries(module, entries,
                      {.where = kLoad,
                       .strict = options.strict,
                       .device = options.device.value_or(mesh_device),
                       .seed = options.seed,
                       .only = options.only,
                       .all_gather_texts =
                           [&ranks](const std::vector<std::string>& texts) {
                             return ranks.all_gather_texts(texts);
                           },
                       .check = {},
                       .copy =
                           [&](const FullLoadPlan& plan, std::size_t entry) {
                             plan.copy(entry, share_tensor(*entries[entry].tensor(), ranks,
                                                           mesh_device, entries[entry].name));
                           },
                       .finish = {}});
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
