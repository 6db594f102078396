#include <map>

#include "tessera/nn/module.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops_elementwise.h"

namespace tessera::nn {
namespace {

using ParametersByName = std::map<std::string, Parameter>;

ParametersByName by_name(const Module& module) {
  ParametersByName out;
  for (const NamedParameter& named : module.named_parameters()) {
    out.emplace(named.name, named.parameter);
  }
  return out;
}

// What keeps `from` from being copied into `to`; empty when nothing does.
std::string difference(const Parameter& from, const Parameter& to) {
  if (from.spec().global_shape != to.spec().global_shape) {
    return fmt::format("{} against {}", from.spec().global_shape.str(),
                       to.spec().global_shape.str());
  }
  return from.spec() == to.spec() ? "" : "sharded differently";
}

std::string differences(const ParametersByName& from, const ParametersByName& to) {
  std::string out;
  for (const auto& [name, parameter] : from) {
    const auto twin = to.find(name);
    const std::string text =
        twin == to.end() ? "only in the source" : difference(parameter, twin->second);
    if (!text.empty()) out += fmt::format("{}\"{}\" {}", out.empty() ? "" : "; ", name, text);
  }
  for (const auto& [name, parameter] : to) {
    if (from.count(name)) continue;
    out += fmt::format("{}\"{}\" only in the target", out.empty() ? "" : "; ", name);
  }
  return out;
}

}  // namespace

void copy_state(const Module& from, Module& to) {
  const ParametersByName sources = by_name(from);
  ParametersByName targets = by_name(to);
  const std::string text = differences(sources, targets);
  TESSERA_CHECK(text.empty(), "nn.copy_state", "{} and {} are not twins: {}", from.type_name(),
                to.type_name(), text);
  for (const auto& [name, source] : sources) {
    const Tensor values = source.local().tensor();
    Parameter& target = targets.at(name);
    target.materialize(values.device());
    copy_(target.local().tensor(), values);
  }
}

}  // namespace tessera::nn
