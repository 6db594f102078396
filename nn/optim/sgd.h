#pragma once

/// Stochastic gradient descent, with PyTorch's definition; per element, in the order written:
///
///     g = grad + weight_decay * p
///     m = first step ? g : momentum * m + (1 - dampening) * g        with momentum only
///     p = p - lr * (nesterov ? g + momentum * m : m)                 without momentum: p - lr * g
///
/// State: "momentum", one tensor of local()'s shape per parameter, only where momentum is not 0.
/// One launch a step.

#include "tessera/nn/optim/optimizer.h"

namespace tessera::nn::optim {

struct SgdOptions {
  double lr = -1;  ///< required, >= 0
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  ///< needs momentum > 0 and dampening 0
};

class SGD final : public Optimizer {
 public:
  /// Throws InvalidArgument for no parameters, or options outside their ranges.
  SGD(const std::vector<Parameter>& parameters, const SgdOptions& options);

  void step() override;

  double lr() const { return options_.lr; }
  /// From the next step on. Throws InvalidArgument unless >= 0.
  void set_lr(double lr);
  const SgdOptions& options() const { return options_; }

 private:
  SgdOptions options_;
};

}  // namespace tessera::nn::optim
