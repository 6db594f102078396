// load_full_state_dict.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tessera/fsdp/state/mesh_ranks.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/fsdp/state/state_entries.h"
#include "tessera/fsdp/state/state_load_plan.h"
#include "tessera/nn/module_members.h"
#include "tessera/tensor/check.h"
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

}  // namespace tessera::fsdp
