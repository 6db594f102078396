#pragma once

/// A function as a layer, for containers: y = f(x). Parameters that the function captures are not
/// the layer's: they are not initialised, saved or sharded with it.

#include <functional>

#include "tessera/nn/layer.h"

namespace tessera::nn {

class Lambda final : public Layer<Lambda> {
 public:
  using Function = std::function<Variable(const Variable&)>;
  /// Throws InvalidArgument for an empty function.
  explicit Lambda(Function function);

  Variable forward(const Variable& x) { return function_(x); }

 private:
  Function function_;
};

}  // namespace tessera::nn
