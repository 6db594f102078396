#include "tessera/fsdp/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/fsdp/handle.h"
#include "tessera/fsdp/runtime/module_state.h"
#include "tessera/fsdp/runtime/root_state.h"

namespace tessera::fsdp {
namespace {

using Names = std::map<const nn::Module*, std::string>;

std::string listed(const std::vector<std::string>& parts, const char* none) {
  return parts.empty() ? none : fmt::format("{}", fmt::join(parts, ", "));
}

std::int64_t local_bytes(const nn::Parameter& parameter) {
  std::int64_t elements = 0;
  for (const nn::ShardBox& box : parameter.spec().boxes) elements += box.extent.numel();
  return elements * static_cast<std::int64_t>(dtype_size(parameter.dtype()));
}

// One group: the modules of one call.
struct Group {
  Handle handle;
  std::vector<nn::Module*> modules;
};

struct Row {
  nn::Parameter parameter;
  std::string name;
  DType compute;
};

std::vector<Group> groups_of(nn::Module& model) {
  std::vector<Group> out;
  for (nn::Module* module : sharded_modules(model)) {
    const Handle handle = of(*module);
    const auto same = [&](const Group& group) {
      return &group.handle.module_state() == &handle.module_state();
    };
    const auto found = std::find_if(out.begin(), out.end(), same);
    if (found == out.end()) {
      out.push_back({handle, {module}});
    } else {
      found->modules.push_back(module);
    }
  }
  return out;
}

std::string reshard_text(const ReshardAfterForward& reshard) {
  if (reshard.ranks()) return std::to_string(*reshard.ranks());
  if (reshard.reshard()) return *reshard.reshard() ? "true" : "false";
  return "default";
}

void add_precision(const MixedPrecision& mixed, std::vector<std::string>& out) {
  const auto add = [&out](const char* what, const std::optional<DType>& dtype) {
    if (dtype) out.push_back(fmt::format("{} {}", what, dtype_name(*dtype)));
  };
  add("compute in", mixed.param_dtype);
  add("reduce in", mixed.reduce_dtype);
  add("results in", mixed.output_dtype);
  add("buffers in", mixed.buffer_dtype);
  if (mixed.param_dtype && !mixed.cast_forward_inputs) out.push_back("arguments not cast");
  if (mixed.keep_low_precision_gradients) out.push_back("gradients kept in the reduce dtype");
  if (mixed.exempt) out.push_back("some modules exempt");
}

std::string options_text(const Handle& handle) {
  const FullyShardOptions& options = handle.options();
  std::vector<std::string> out;
  if (handle.kind() == Kind::kFullyShard) {
    const ModuleSettings& settings = handle.module_state().settings();
    out.push_back("reshard_after_forward " + reshard_text(settings.reshard_after_forward));
    if (options.shard_optimizer_over_replicas) out.push_back("optimizer sharded over replicas");
    if (options.shard_placement) out.push_back("placements of its own");
    if (options.gather_extension) out.push_back("gather extension");
  }
  add_precision(options.mixed_precision, out);
  if (options.offload) out.push_back("offloaded");
  if (!options.ignored_parameters.empty())
    out.push_back(fmt::format("ignored parameters: {}", options.ignored_parameters.size()));
  if (!options.ignored_modules.empty())
    out.push_back(fmt::format("ignored modules: {}", options.ignored_modules.size()));
  if (!handle.requires_gradient_sync()) {
    out.push_back("gradient sync off");
  } else if (!handle.requires_all_reduce()) {
    out.push_back("all-reduce off");
  }
  if (!handle.reshard_after_backward()) out.push_back("kept after backward");
  return listed(out, "none");
}

std::string placement_text(const GroupPlacements& placements) {
  return fmt::format("parameter {}, kept {}, gradient {}, optimizer {}",
                     distributed::str(placements.parameter), distributed::str(placements.kept),
                     distributed::str(placements.gradient), distributed::str(placements.optimizer));
}

std::string prefetch_text(const std::optional<std::vector<nn::Module*>>& given,
                          const std::string& implicit, const Names& names) {
  if (!given) return implicit;
  std::vector<std::string> out;
  for (const nn::Module* module : *given) {
    const auto found = names.find(module);
    out.push_back(found == names.end() ? module->type_name() : found->second);
  }
  return listed(out, "nothing");
}

std::string prefetch_text(const Handle& handle, const Names& names) {
  // Not handle.prefetch(), which would make a module that never ran a root.
  const std::shared_ptr<RootState>& root_state = handle.module_state().shared_root_state();
  const PrefetchOptions options = root_state ? root_state->prefetch : PrefetchOptions{};
  const bool ahead = options.backward == BackwardPrefetch::kPre;
  return fmt::format("forward {}, backward {}",
                     prefetch_text(handle.modules_to_forward_prefetch(),
                                   fmt::format("{} ahead", options.forward), names),
                     prefetch_text(handle.modules_to_backward_prefetch(),
                                   ahead ? "the preceding group" : "none", names));
}

// The parameters that the call claimed: those of its managed modules, without the ignored ones,
// which have no owner.
std::vector<Row> rows_of(const Handle& handle, const std::map<const void*, std::string>& names) {
  const MixedPrecision& mixed = handle.options().mixed_precision;
  std::vector<Row> out;
  std::set<const void*> seen;
  for (const nn::Module* module : handle.managed_modules()) {
    const bool exempt = mixed.exempt && mixed.exempt(*module);
    for (const nn::NamedParameter& own : module->own_parameters()) {
      const nn::Parameter& p = own.parameter;
      if (p.owner() == nullptr || !seen.insert(p.id()).second) continue;
      const auto found = names.find(p.id());
      out.push_back({.parameter = p,
                     .name = found == names.end() ? p.name() : found->second,
                     .compute = exempt ? p.dtype() : mixed.param_dtype.value_or(p.dtype())});
    }
  }
  return out;
}

using Cells = std::array<std::string, 7>;

std::string table(const std::vector<Cells>& rows) {
  std::array<std::size_t, 7> widths{};
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Cells& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format(" {:{}} ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string parameters_text(const std::vector<Row>& rows, const MixedPrecision& mixed) {
  DType widest = rows.front().compute;
  for (const Row& row : rows) {
    if (dtype_size(row.compute) > dtype_size(widest)) widest = row.compute;
  }
  std::vector<Cells> out = {
      {"parameter", "global", "local", "stored", "compute", "reduce", "placement"}};
  for (const Row& row : rows) {
    const nn::Parameter& p = row.parameter;
    const DType reduce = mixed.reduce_dtype.value_or(widest);
    out.push_back({row.name, p.spec().global_shape.str(), p.spec().boxes.front().extent.str(),
                   dtype_name(p.dtype()), dtype_name(row.compute),
                   p.requires_grad() ? dtype_name(reduce) : "frozen",
                   distributed::str(distributed::placements_of(p))});
  }
  return table(out);
}

std::string group_text(const Group& group, const Names& names,
                       const std::map<const void*, std::string>& parameter_names) {
  const Handle& handle = group.handle;
  std::vector<std::string> modules, types;
  for (const nn::Module* module : group.modules) {
    modules.push_back(names.at(module));
    types.push_back(module->type_name());
  }
  const std::string title = fmt::format("\n{}: {} of {}", fmt::join(modules, ", "),
                                        kind_name(handle.kind()), fmt::join(types, ", "));
  if (!handle.has_group()) return title + ", no group\n";

  const std::vector<Row> rows = rows_of(handle, parameter_names);
  std::int64_t local = 0;
  for (const Row& row : rows) local += local_bytes(row.parameter);
  std::string out = fmt::format("{}, {}", title, group_state_name(handle.state()));
  if (handle.phase() != Phase::kIdle) out += fmt::format(", in {}", phase_name(handle.phase()));
  out += fmt::format("\n  mesh       {}\n", handle.options().mesh.str());
  out += fmt::format("  options    {}\n", options_text(handle));
  out += fmt::format("  placement  {}\n", placement_text(handle.placements()));
  out += fmt::format("  prefetch   {}\n", prefetch_text(handle, names));
  out += fmt::format("  modules    {}\n", handle.managed_modules().size());
  out += fmt::format("  bytes      {} local, {} gathered, {} slots\n", local,
                     handle.gathered_bytes(), handle.slot_bytes());
  return out + parameters_text(rows, handle.options().mixed_precision);
}

std::string outside_text(const nn::Module& model) {
  std::string out;
  std::int64_t count = 0;
  for (const nn::NamedParameter& named : model.named_parameters()) {
    if (named.parameter.owner() != nullptr) continue;
    ++count;
    out += fmt::format("  {} {} {}\n", named.name, named.parameter.shape().str(),
                       dtype_name(named.parameter.dtype()));
  }
  return count == 0 ? "" : fmt::format("\nin no group: {}\n{}", count, out);
}

}  // namespace

std::string describe(nn::Module& model) {
  const std::vector<Group> groups = groups_of(model);
  if (groups.empty()) return fmt::format("{}: nothing is sharded\n", model.type_name());
  Names names;
  for (const nn::NamedModule& named : model.named_modules())
    names.emplace(named.module, named.name.empty() ? "root" : named.name);
  std::map<const void*, std::string> parameter_names;
  for (const nn::NamedParameter& named : model.named_parameters())
    parameter_names.emplace(named.parameter.id(), named.name);

  const auto count = std::count_if(groups.begin(), groups.end(),
                                   [](const Group& group) { return group.handle.has_group(); });
  const distributed::DeviceMesh& mesh = groups.front().handle.options().mesh;
  std::string out = fmt::format("{}, as rank {} of {} has it: {} groups\n", model.type_name(),
                                mesh.rank(), mesh.size(), count);
  for (const Group& group : groups) out += group_text(group, names, parameter_names);
  return out + outside_text(model);
}

}  // namespace tessera::fsdp
