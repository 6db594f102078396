#pragma once

/// Adapts options for a whole model to a call on one of its modules. Used by the files that make
/// such calls: wrap_policy and wrap_defaults. Header only.

#include <set>
#include <utility>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// The options that a call takes from the whole model's options.
struct Inherited {
  distributed::DeviceMesh mesh;  ///< used if the call's own options have no mesh
  std::vector<nn::Parameter> ignored_parameters;
  std::vector<nn::Module*> ignored_modules;
};

/// `given`, for a call on `module`: with the inherited mesh if it has none, and with the ignored
/// parameters and modules of both lists that are at or below the module.
template <class Options>
Options options_inside(nn::Module& module, const Options& given, const Inherited& from) {
  std::set<const void*> inside, taken;
  for (const nn::NamedModule& named : module.named_modules()) inside.insert(named.module);
  for (const nn::Parameter& parameter : module.parameters()) inside.insert(parameter.id());

  std::vector<nn::Parameter> parameters;
  std::vector<nn::Module*> modules;
  for (const auto* list : {&given.ignored_parameters, &from.ignored_parameters}) {
    for (const nn::Parameter& parameter : *list) {
      if (inside.contains(parameter.id()) && taken.insert(parameter.id()).second)
        parameters.push_back(parameter);
    }
  }
  for (const auto* list : {&given.ignored_modules, &from.ignored_modules}) {
    for (nn::Module* ignored : *list) {
      if (inside.contains(ignored) && taken.insert(ignored).second) modules.push_back(ignored);
    }
  }
  Options out = given;
  if (!out.mesh.defined()) out.mesh = from.mesh;
  out.ignored_parameters.swap(parameters);
  out.ignored_modules.swap(modules);
  return out;
}

}  // namespace tessera::fsdp
