#include "tessera/nn/layers/module_list.h"

#include "tessera/tensor/check.h"

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

}  // namespace tessera::nn
