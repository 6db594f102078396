#include "tessera/nn/layers/container.h"

#include "tessera/nn/layer.h"
#include "tessera/tensor/check.h"

namespace tessera::nn::detail {

void throw_other_type(const char* where, const std::string& name, const Module& found,
                      const std::type_info& wanted) {
  throw_error<InvalidArgument>(where, "\"{}\" is a {}, not a {}", name, found.type_name(),
                               short_type_name(wanted));
}

}  // namespace tessera::nn::detail

namespace tessera::nn {

Module& ModuleList::at(int index) {
  TESSERA_CHECK(index >= 0 && index < size(), kWhere, "index {} of {} modules", index, size());
  return *modules_[static_cast<std::size_t>(index)];
}

void ModuleList::push(std::unique_ptr<Module> module) {
  TESSERA_CHECK(module != nullptr, kWhere, "module {} is null", size());
  register_module(std::to_string(size()), *module);
  modules_.push_back(std::move(module));
}

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
