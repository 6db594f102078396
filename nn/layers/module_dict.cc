#include "tessera/nn/layers/module_dict.h"

#include "tessera/tensor/check.h"

namespace tessera::nn {

std::vector<std::string> ModuleDict::names() const {
  std::vector<std::string> out;
  for (const auto& [name, module] : modules_) out.push_back(name);
  return out;
}

Module& ModuleDict::at(const std::string& name) {
  Module* module = find(name);
  TESSERA_CHECK(module != nullptr, kWhere, "no module \"{}\"; there are: {}", name,
                fmt::join(names(), ", "));
  return *module;
}

void ModuleDict::put(std::string name, std::unique_ptr<Module> module) {
  TESSERA_CHECK(module != nullptr, kWhere, "module \"{}\" is null", name);
  register_module(name, *module);
  modules_.emplace_back(std::move(name), std::move(module));
}

Module* ModuleDict::find(const std::string& name) const {
  for (const auto& [known, module] : modules_) {
    if (known == name) return module.get();
  }
  return nullptr;
}

}  // namespace tessera::nn
