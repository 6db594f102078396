#pragma once

// What a Module holds; for the files that implement it.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "tessera/nn/module.h"

namespace tessera::nn {

struct Module::Children {
  // By address, so that tie() on a registered member counts; members do not move, because modules
  // do not.
  std::vector<std::pair<std::string, Parameter*>> parameters;
  std::vector<std::pair<std::string, Buffer*>> buffers;
  std::vector<std::pair<std::string, Module*>> modules;
  std::vector<std::weak_ptr<const void>> modules_alive;  // one for each of them
  HookList<void(Module&, const VisitVariables&)> pre_hooks;
  HookList<void(Module&, const VisitVariables*)> forward_hooks;
  HookList<void(Module&, Gradients&, const Gradients&)> backward_hooks;
  HookList<void(Module&, Gradients&)> backward_pre_hooks;
  StateDictHooks state_dict_hooks;
  std::map<std::type_index, std::shared_ptr<void>> extensions;

  bool is_taken(const std::string& name) const {
    const auto has_name = [&name](const auto& entry) { return entry.first == name; };
    return std::any_of(parameters.begin(), parameters.end(), has_name) ||
           std::any_of(buffers.begin(), buffers.end(), has_name) ||
           std::any_of(modules.begin(), modules.end(), has_name);
  }
};

namespace detail {
/// Throws StateError tagged `where` for a parameter, buffer or module that is a member of a module
/// of the tree but was never registered.
void check_all_registered(Module& root, const char* where);
}  // namespace detail

}  // namespace tessera::nn
