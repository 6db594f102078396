#pragma once

/// Stochastic gradient descent, with PyTorch's definition; per element, in the order written:
///
///     g = +-grad + weight_decay * p                                  minus to maximize
///     m = first step ? g : momentum * m + (1 - dampening) * g        with momentum only
///     p = p - lr * (nesterov ? g + momentum * m : m)                 without momentum: p - lr * g
///
/// State: "momentum", one tensor of local()'s shape per parameter, only where momentum is not 0.
/// One launch a step, whatever the number of parameters and groups.

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct SgdOptions {
  double lr = -1;  ///< required, >= 0
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  ///< needs momentum > 0 and dampening 0
  bool maximize = false;
};

class SGD final : public GroupOptimizer<SgdOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups, or options outside their ranges.
  SGD(const std::vector<Parameter>& parameters, const SgdOptions& options);
  SGD(const Module& module, const SgdOptions& options) = delete;  ///< SGD(module.parameters(), ...)
  explicit SGD(std::vector<Group> groups);

  std::string type_name() const override { return "SGD"; }

 private:
  void update(const std::vector<Parameter>& parameters) override;
  bool applies_gradient_scale() const override { return true; }
  void check_options(const SgdOptions& options) const override;
  OptionList list_options(SgdOptions& options) const override;
  std::vector<std::string> state_names(const SgdOptions& options) const override;
};

}  // namespace tessera::nn::optim
