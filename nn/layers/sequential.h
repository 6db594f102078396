#pragma once

/// Layers one after another: y = l_n(... l_1(l_0(x))). Each is called as Variable(const Variable&).
///
///     nn::Sequential net;
///     net.add<nn::Linear>({.in = 784, .out = 256});
///     net.add<nn::GELU>();
///     net.add([](const Variable& x) { return x * 0.5; });
///     net.add<nn::Linear>({.in = 256, .out = 10});
///     Parameter& head = net.at<nn::Linear>(3).weight();
///
/// Children are constructed in place, owned, and named "0", "1", ... An empty one returns its
/// input. Left out of PyTorch's: slices, which would share layers between two owners (put one
/// Sequential into another instead), names of your own (register the layers in a class), insert and
/// deletion.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/lambda.h"

namespace tessera::nn {

class Sequential final : public Layer<Sequential> {
 public:
  Sequential() = default;
  explicit Sequential(const auto&, const auto&...) = delete;  ///< net.add<nn::ReLU>()
  /// Constructs an L at the end and returns it. One argument may be the layer's options in braces.
  template <class L, class Argument = typename L::Options>
  L& add(Argument&& argument) {
    return append(std::make_unique<L>(std::forward<Argument>(argument)));
  }
  template <class L, class... Args>
  requires(sizeof...(Args) != 1) L& add(Args&&... args) {
    return append(std::make_unique<L>(std::forward<Args>(args)...));
  }
  /// A step that is a function.
  Lambda& add(Lambda::Function function) {
    return append(std::make_unique<Lambda>(std::move(function)));
  }
  /// Takes over one that exists. Throws InvalidArgument for null.
  template <class L>
  L& append(std::unique_ptr<L> layer) {
    static_assert(std::is_invocable_r_v<Variable, L&, const Variable&>,
                  "a layer of a Sequential takes one Variable and returns one");
    L* added = layer.get();
    push({std::move(layer), [added](const Variable& x) -> Variable { return (*added)(x); }});
    return *added;
  }

  Variable forward(const Variable& x);

  int size() const { return static_cast<int>(steps_.size()); }
  /// Throws InvalidArgument outside [0, size()).
  Module& at(int index);
  /// The same as an L; throws InvalidArgument naming both types when it is another.
  template <class L>
  L& at(int index) {
    return detail::typed<L>(at(index), kWhere, index);
  }

 private:
  static constexpr const char* kWhere = "nn.Sequential";
  struct Step {
    std::unique_ptr<Module> layer;
    std::function<Variable(const Variable&)> call;
  };
  void push(Step step);

  std::vector<Step> steps_;
};

}  // namespace tessera::nn
