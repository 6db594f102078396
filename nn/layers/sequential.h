#pragma once

/// Layers one after another: y = l_n(... l_1(l_0(x))). Each is called as Variable(const Variable&).
///
///     nn::Sequential net;
///     net.add<nn::Linear>({.in = 784, .out = 256});
///     net.add<nn::GELU>();
///     net.add<nn::Linear>({.in = 256, .out = 10});
///
/// Children are constructed in place, owned, and named "0", "1", ... An empty one returns its
/// input.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tessera/nn/layer.h"

namespace tessera::nn {

class Sequential final : public Layer<Sequential> {
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

  Variable forward(const Variable& x);

  int size() const { return static_cast<int>(steps_.size()); }
  /// Throws InvalidArgument outside [0, size()).
  Module& at(int index);

 private:
  struct Step {
    std::unique_ptr<Module> layer;
    std::function<Variable(const Variable&)> call;
  };
  template <class L>
  L& append(std::unique_ptr<L> layer) {
    static_assert(std::is_invocable_r_v<Variable, L&, const Variable&>,
                  "a layer of a Sequential takes one Variable and returns one");
    L& added = *layer;
    push({std::move(layer), [&added](const Variable& x) -> Variable { return added(x); }});
    return added;
  }
  void push(Step step);

  std::vector<Step> steps_;
};

}  // namespace tessera::nn
