#include "tessera/distributed/tensor_parallel/tensor_parallel.h"

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/distributed/tensor_parallel/parallel_layouts.h"
#include "tessera/distributed/tensor_parallel/parallel_styles.h"
#include "tessera/nn/name_pattern.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr const char* kWhere = "distributed.parallelize";

using detail::ParameterUse;
using detail::StyledModule;

// What a module has been given, in this plan or an earlier one.
struct GivenStyles {
  enum Slot { kCompute, kInput, kOutput, kSlots };
  const char* names[kSlots] = {};

  static Slot slot_of(const ParallelStyle& style) {
    if (std::holds_alternative<PrepareModuleInput>(style)) return kInput;
    return std::holds_alternative<PrepareModuleOutput>(style) ? kOutput : kCompute;
  }
};

std::string known_names(const std::vector<nn::NamedModule>& modules) {
  std::string out;
  for (const nn::NamedModule& module : modules) {
    if (!module.name.empty()) out += (out.empty() ? "" : ", ") + module.name;
  }
  return out.empty() ? "none" : out;
}

std::vector<StyledModule> match(nn::Module& root, const ParallelPlan& plan) {
  const std::vector<nn::NamedModule> modules = root.named_modules();
  std::vector<StyledModule> out;
  for (const ParallelRule& rule : plan) {
    const std::size_t before = out.size();
    for (const nn::NamedModule& named : modules) {
      if (nn::matches(named.name, rule.modules))
        out.push_back({.name = named.name, .module = named.module, .style = &rule.style});
    }
    TESSERA_CHECK(out.size() > before, kWhere,
                  "\"{}\" ({}) matches no module of {}; its modules: {}", rule.modules,
                  detail::style_name(rule.style), root.type_name(), known_names(modules));
  }
  return out;
}

// Notes which module gets which style; throws if a module already has such a style.
std::map<nn::Module*, GivenStyles> give_styles(const std::vector<StyledModule>& styled) {
  std::map<nn::Module*, GivenStyles> given;
  for (const StyledModule& one : styled) {
    const GivenStyles::Slot slot = GivenStyles::slot_of(*one.style);
    std::vector<nn::Module*> modules = detail::styled_children(one);
    modules.push_back(one.module);
    for (nn::Module* module : modules) {
      const GivenStyles* earlier = module->attached<GivenStyles>();
      GivenStyles& styles =
          given.try_emplace(module, earlier ? *earlier : GivenStyles()).first->second;
      TESSERA_CHECK(styles.names[slot] == nullptr, kWhere,
                    "{} is given {}, and was given {} already: one style for each module",
                    one.text(), detail::style_name(*one.style), styles.names[slot]);
      styles.names[slot] = detail::style_name(*one.style);
    }
  }
  return given;
}

using UsesById = std::map<const void*, ParameterUse>;

std::string use_text(const ParameterUse& use) {
  if (use.cut) return fmt::format("cut to {}", use.cut->boxes.front().extent.str());
  return use.sums_gradient ? "whole, with a gradient in terms" : "whole";
}

// Every style's wish for each parameter, which those of tied ones must share.
UsesById collect_uses(const std::vector<StyledModule>& styled, const DeviceMesh& mesh) {
  UsesById uses;
  for (const StyledModule& one : styled) {
    for (ParameterUse& use : detail::parameter_uses(one, mesh)) {
      TESSERA_CHECK_AS(StateError, use.parameter.owner() == nullptr, kWhere,
                       "\"{}\" is sharded (group {}): apply tensor parallelism before fully_shard",
                       use.name, use.parameter.owner()->group_name());
      const auto [known, is_new] = uses.emplace(use.parameter.id(), use);
      const ParameterUse& first = known->second;
      TESSERA_CHECK(is_new || (first.cut == use.cut && first.sums_gradient == use.sums_gradient),
                    kWhere,
                    "\"{}\" ({}) and \"{}\" ({}) are tied: give their modules styles that agree",
                    first.name, use_text(first), use.name, use_text(use));
      const nn::ShardSpec& now = use.parameter.value_spec();
      const bool is_whole = now.is_whole() && now.cuts.empty();
      TESSERA_CHECK(is_whole || (use.cut && *use.cut == now), kWhere,
                    "\"{}\" was cut to {} before, and is to be {} now: give tied modules styles "
                    "that agree",
                    use.name, now.boxes.front().extent.str(), use_text(use));
    }
  }
  return uses;
}

// A module without a style goes on computing with whole parameters.
void check_others(nn::Module& root, const std::map<nn::Module*, GivenStyles>& given,
                  const UsesById& uses) {
  for (const nn::NamedModule& named : root.named_modules()) {
    const auto found = given.find(named.module);
    if (found != given.end() && found->second.names[GivenStyles::kCompute] != nullptr) continue;
    for (const nn::NamedParameter& own : named.module->own_parameters()) {
      const auto use = uses.find(own.parameter.id());
      const bool changes =
          use != uses.end() && (use->second.cut.has_value() || use->second.sums_gradient);
      TESSERA_CHECK(!changes, kWhere,
                    "\"{}\" ({}) is tied to \"{}\" of \"{}\" ({}), which has no style: give it one "
                    "that agrees",
                    use->second.name, use_text(use->second), own.name, named.name,
                    named.module->type_name());
    }
  }
}

// Gradients in terms are added up before they are accumulated. Tied over several plans: once.
void sum_gradient(nn::Parameter parameter,
                  const std::shared_ptr<detail::ParallelLayouts>& layouts) {
  const std::string tag = "gradient summed over " + layouts->axis();
  if (parameter.has_tag(tag)) return;
  parameter.add_tag(tag);
  parameter.value_leaf().register_hook(
      [layouts](const Variable& gradient) { return layouts->summed_gradient(gradient); });
}

}  // namespace

void parallelize(nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan) {
  TESSERA_CHECK(mesh.ndim() == 1, kWhere, "the mesh has axes {}; choose one: mesh[\"{}\"]",
                fmt::join(mesh.axes(), ", "), mesh.axes().back());
  const auto layouts =
      std::make_shared<detail::ParallelLayouts>(make_mesh(mesh), mesh.axes().front());
  const std::vector<StyledModule> styled = match(module, plan);
  for (const StyledModule& one : styled) detail::check_style(one, *layouts);
  const std::map<nn::Module*, GivenStyles> given = give_styles(styled);
  const UsesById uses = collect_uses(styled, mesh);
  check_others(module, given, uses);

  for (const auto& [id, use] : uses) {
    nn::Parameter parameter = use.parameter;
    if (use.cut && *use.cut != parameter.value_spec()) parameter.cut(*use.cut, layouts->mesh());
    if (use.sums_gradient) sum_gradient(parameter, layouts);
  }
  for (const StyledModule& one : styled) detail::apply_style(one, layouts);
  for (const auto& [each, styles] : given) each->attach(std::make_shared<GivenStyles>(styles));
}

}  // namespace tessera::distributed
