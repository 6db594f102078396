#pragma once

/// Modules by name, for a forward of your own. Children are constructed in place and owned.
///
///     heads_.add<nn::Linear>("classes", {.in = 64, .out = 10});
///     heads_.add<nn::Linear>("boxes", {.in = 64, .out = 4});
///     Variable y = heads_.at<nn::Linear>("boxes")(x);
///
/// In the order in which they were put in: children() lists names and modules. It has no forward:
/// calling it does not compile. Left out of PyTorch's: pop, clear and update, since a module stays
/// registered for life.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/container.h"

namespace tessera::nn {

class ModuleDict final : public Layer<ModuleDict> {
 public:
  /// Constructs an L and returns it. One argument may be the layer's options in braces. Throws
  /// InvalidArgument for a name that is empty, has a dot or is taken.
  template <class L, class Argument = typename L::Options>
  L& add(std::string name, Argument&& argument) {
    return insert(std::move(name), std::make_unique<L>(std::forward<Argument>(argument)));
  }
  template <class L, class... Args>
  requires(sizeof...(Args) != 1) L& add(std::string name, Args&&... args) {
    return insert(std::move(name), std::make_unique<L>(std::forward<Args>(args)...));
  }
  /// Takes over one that exists. Throws InvalidArgument for null, and as add.
  template <class L>
  L& insert(std::string name, std::unique_ptr<L> module) {
    L* added = module.get();
    put(std::move(name), std::move(module));
    return *added;
  }

  int size() const { return static_cast<int>(modules_.size()); }
  bool empty() const { return modules_.empty(); }
  bool is_container() const override { return true; }
  bool contains(const std::string& name) const { return find(name) != nullptr; }
  std::vector<std::string> names() const;
  /// Throws InvalidArgument listing the names there are.
  Module& at(const std::string& name);
  /// The same as an L; throws InvalidArgument naming both types when it is another.
  template <class L>
  L& at(const std::string& name) {
    return detail::typed<L>(at(name), kWhere, name);
  }

 private:
  static constexpr const char* kWhere = "nn.ModuleDict";
  void put(std::string name, std::unique_ptr<Module> module);
  Module* find(const std::string& name) const;

  std::vector<std::pair<std::string, std::unique_ptr<Module>>> modules_;
};

}  // namespace tessera::nn
