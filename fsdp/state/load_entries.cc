#include "tessera/fsdp/state/load_entries.h"

#include <algorithm>

#include "tessera/nn/module_members.h"
#include "tessera/nn/state/load_plan.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/random.h"

namespace tessera::fsdp {
namespace {

[[noreturn]] void throw_problems(const char* where, const nn::Module& module,
                                 const std::vector<std::string>& problems,
                                 const std::string& remedy) {
  throw_error<InvalidArgument>(where, "the state does not fit {}: {}{}", module.type_name(),
                               fmt::join(problems, "; "), remedy);
}

// Throws for misfits, and for missing or unexpected names if `with_names`.
void judge(const char* where, const nn::Module& module, const LoadVerdict& verdict,
           bool with_names) {
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
    const bool names_differ = problems.size() > verdict.misfits.size();
    throw_problems(where, module, problems,
                   nn::detail::load_remedy(names_differ, verdict.shapes_differ));
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

nn::StateDict before_load(nn::Module& module, const nn::StateDict& state) {
  nn::StateDict out = state;
  for (const nn::NamedModule& named : module.named_modules()) {
    const std::string prefix = named.name.empty() ? "" : named.name + ".";
    for (const auto& hook : named.module->state_dict_hooks().before_load.snapshot())
      hook(*named.module, out, prefix);
  }
  return out;
}

nn::LoadReport load_entries(nn::Module& module, const std::vector<StateEntry>& entries,
                            const EntriesLoad& load) {
  const std::vector<nn::NamedModule> modules = module.named_modules();
  const FullLoadPlan plan(module, entries, load.device, load.only);
  LoadVerdict verdict = plan.verdict(load.all_gather_texts);
  // Hooks that run after the load may remove names from the report.
  const bool forgives = std::any_of(modules.begin(), modules.end(), [](const auto& named) {
    return !named.module->state_dict_hooks().after_load.empty();
  });
  judge(load.where, module, verdict, load.strict && !forgives);
  if (load.check) load.check(plan);
  name_members(module);
  const auto& unknown = verdict.report.unexpected;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (std::find(unknown.begin(), unknown.end(), entries[i].name) == unknown.end())
      load.copy(plan, i);
  }
  const std::function<void()> finish = [&] {
    compute_buffers(module, load.device, load.seed);
    for (const nn::NamedModule& named : modules) {
      for (const auto& hook : named.module->state_dict_hooks().after_load.snapshot())
        hook(*named.module, verdict.report);
    }
    judge(load.where, module, verdict, load.strict);
  };
  load.finish ? load.finish(finish) : finish();
  return verdict.report;
}

}  // namespace tessera::fsdp
