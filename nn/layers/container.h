#pragma once

/// Modules that hold modules: ModuleList and ModuleDict.

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/module.h"

namespace tessera::nn::detail {

// What the containers of modules share: Sequential, ModuleList, ModuleDict. For their headers.

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

namespace tessera::nn {

/// Modules by number, for a forward of your own. Children are constructed in place, owned, and
/// named "0", "1", ...
///
///     class Stack final : public nn::Layer<Stack> {
///      public:
///       Stack() {
///         for (int i = 0; i < 12; ++i) blocks_.add<Block>({.dim = 64});
///         register_module("blocks", blocks_);
///       }
///       Variable forward(Variable x) {
///         for (Block& block : blocks_.as<Block>()) x = block(x);
///         return x;
///       }
///      private:
///       nn::ModuleList blocks_;
///     };
///
/// It has no forward: calling it does not compile. Left out of PyTorch's: insert and deletion,
/// since parameters are named by their place, and a module stays registered for life.
class ModuleList final : public Layer<ModuleList> {
 public:
  /// Constructs an L at the end and returns it. One argument may be the layer's options in braces.
  template <class L, class Argument = typename L::Options>
  L& add(Argument&& argument) {
    return append(std::make_unique<L>(std::forward<Argument>(argument)));
  }
  template <class L, class... Args>
  requires(sizeof...(Args) != 1) L& add(Args&&... args) {
    return append(std::make_unique<L>(std::forward<Args>(args)...));
  }
  /// Takes over one that exists. Throws InvalidArgument for null.
  template <class L>
  L& append(std::unique_ptr<L> module) {
    L* added = module.get();
    push(std::move(module));
    return *added;
  }

  int size() const { return static_cast<int>(modules_.size()); }
  bool empty() const { return modules_.empty(); }
  bool is_container() const override { return true; }
  /// Throws InvalidArgument outside [0, size()).
  Module& at(int index);
  /// The same as an L; throws InvalidArgument naming both types when it is another.
  template <class L>
  L& at(int index) {
    return detail::typed<L>(at(index), kWhere, index);
  }
  /// All of them as Ls: for (L& layer : list.as<L>()). Throws as at<L>.
  template <class L>
  std::vector<std::reference_wrapper<L>> as() {
    std::vector<std::reference_wrapper<L>> out;
    for (int i = 0; i < size(); ++i) out.push_back(at<L>(i));
    return out;
  }

  /// for (nn::Module& module : list).
  class Iterator {
   public:
    Module& operator*() const { return **place_; }
    Iterator& operator++() {
      ++place_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    friend class ModuleList;
    explicit Iterator(const std::unique_ptr<Module>* place) : place_(place) {}
    const std::unique_ptr<Module>* place_;
  };
  Iterator begin() const { return Iterator(modules_.data()); }
  Iterator end() const { return Iterator(modules_.data() + modules_.size()); }

 private:
  static constexpr const char* kWhere = "nn.ModuleList";
  void push(std::unique_ptr<Module> module);

  std::vector<std::unique_ptr<Module>> modules_;
};

/// Modules by name, for a forward of your own. Children are constructed in place and owned.
///
///     heads_.add<nn::Linear>("classes", {.in = 64, .out = 10});
///     heads_.add<nn::Linear>("boxes", {.in = 64, .out = 4});
///     Variable y = heads_.at<nn::Linear>("boxes")(x);
///
/// In the order in which they were put in: children() lists names and modules. It has no forward:
/// calling it does not compile. Left out of PyTorch's: pop, clear and update, since a module stays
/// registered for life.
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
