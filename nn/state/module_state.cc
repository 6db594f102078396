#include "tessera/nn/state/module_state.h"

#include <set>

#include "tessera/nn/module_members.h"
#include "tessera/nn/state/load_plan.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

constexpr const char* kLoad = "nn.load_state_dict";

// What stands in the dict once, whatever its number of names.
using Seen = std::set<const void*>;

void save(Module& module, const std::string& prefix, Seen& seen, StateDict& state) {
  if (!seen.insert(&module).second) return;
  const StateDictHooks& hooks = module.state_dict_hooks();
  for (const auto& hook : hooks.before_save.snapshot()) hook(module, prefix);
  for (const auto& [name, parameter] : module.own_parameters()) {
    if (!seen.insert(parameter.id()).second) continue;
    state.set(prefix + name, parameter.local().tensor());
    if (!parameter.spec().is_whole()) state.mark_part(prefix + name, parameter.spec());
  }
  for (const auto& [name, buffer] : module.own_buffers()) {
    if (!buffer.is_persistent() || !seen.insert(buffer.id()).second) continue;
    state.set(prefix + name, buffer.tensor());
  }
  for (const auto& [name, child] : module.children()) {
    save(*child, prefix + name + ".", seen, state);
  }
  for (const auto& hook : hooks.after_save.snapshot()) hook(module, state, prefix);
}

std::string prefix_of(const NamedModule& named, const std::string& prefix) {
  return named.name.empty() ? prefix : prefix + named.name + ".";
}

// The part of the caller's dict that is the model's, as the hooks want it.
StateDict prepared(const std::vector<NamedModule>& modules, const StateDict& state,
                   const std::string& prefix) {
  StateDict out;
  for (const auto& [name, value] : state) {
    if (!name.starts_with(prefix)) continue;
    out.set(name, value);
    if (const ShardSpec* spec = state.part_of(name)) out.mark_part(name, *spec);
  }
  for (const NamedModule& named : modules) {
    for (const auto& hook : named.module->state_dict_hooks().before_load.snapshot()) {
      hook(*named.module, out, prefix_of(named, prefix));
    }
  }
  return out;
}

bool has_after_load(const std::vector<NamedModule>& modules) {
  for (const NamedModule& named : modules) {
    if (!named.module->state_dict_hooks().after_load.empty()) return true;
  }
  return false;
}

[[noreturn]] void throw_problems(const Module& module, const std::vector<std::string>& problems,
                                 const std::string& remedy) {
  throw_error<InvalidArgument>(kLoad, "the state does not fit {}: {}{}", module.type_name(),
                               fmt::join(problems, "; "), remedy);
}

// Also for members that are not in the dict, so that errors can describe them.
void name_members(Module& module) {
  for (NamedParameter& named : module.named_parameters()) {
    if (!named.parameter.is_materialized()) named.parameter.set_name(named.name);
  }
  for (NamedBuffer& named : module.named_buffers()) {
    if (!named.buffer.is_materialized()) named.buffer.set_name(named.name);
  }
}

void compute_buffers(Module& module, const LoadStateDictOptions& options) {
  for (NamedBuffer& named : module.named_buffers()) {
    if (named.buffer.is_persistent()) continue;
    named.buffer.materialize(options.device);
    named.buffer.reset(random::named_key(options.seed, named.buffer.name()));
  }
}

}  // namespace

StateDict state_dict(Module& module, const StateDictOptions& options) {
  StateDict state;
  Seen seen;
  save(module, options.prefix, seen, state);
  return state;
}

LoadReport load_state_dict(Module& module, const StateDict& state,
                           const LoadStateDictOptions& options) {
  detail::check_all_registered(module, kLoad);
  const std::vector<NamedModule> modules = module.named_modules();
  const StateDict source = prepared(modules, state, options.prefix);
  const detail::LoadPlan plan(module, source, options);
  LoadReport report = plan.report();
  std::vector<std::string> problems = plan.misfits();
  const auto add_names = [&] {
    if (options.strict) plan.describe(report, problems);
  };
  if (!problems.empty() || !has_after_load(modules)) {
    const std::size_t misfits = problems.size();
    add_names();
    if (!problems.empty()) {
      throw_problems(module, problems,
                     detail::load_remedy(problems.size() > misfits, plan.shapes_differ()));
    }
  }
  name_members(module);
  plan.copy();
  compute_buffers(module, options);
  for (const NamedModule& named : modules) {
    for (const auto& hook : named.module->state_dict_hooks().after_load.snapshot()) {
      hook(*named.module, report);
    }
  }
  add_names();
  if (!problems.empty()) throw_problems(module, problems, detail::load_remedy(true, false));
  return report;
}

}  // namespace tessera::nn
