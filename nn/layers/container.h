#pragma once

/// What the containers of modules share: Sequential, ModuleList, ModuleDict. For their headers.

#include <string>
#include <type_traits>
#include <typeinfo>

#include "tessera/nn/module.h"

namespace tessera::nn::detail {

[[noreturn]] void throw_other_type(const char* where, const std::string& name, const Module& found,
                                   const std::type_info& wanted);

/// `module` as an L. Throws InvalidArgument naming both types when it is none.
template <class L, class Name>
L& typed(Module& module, const char* where, const Name& name) {
  L* layer = dynamic_cast<L*>(&module);
  if (layer == nullptr) [[unlikely]] {
    if constexpr (std::is_integral_v<Name>) {
      throw_other_type(where, std::to_string(name), module, typeid(L));
    } else {
      throw_other_type(where, name, module, typeid(L));
    }
  }
  return *layer;
}

}  // namespace tessera::nn::detail
