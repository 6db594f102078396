#pragma once

/// RMSprop with PyTorch's definition (Hinton, lecture 6e of "Neural networks for machine learning", 2012); per element:
///
///     g = +-grad + weight_decay * p                                  minus to maximize
///     s = alpha s + (1 - alpha) g^2
///     centered: a = alpha a + (1 - alpha) g, and s - a^2 in place of s below
///     d = g / (sqrt(s) + eps)
///     p = p - lr * d, or with momentum: b = momentum b + d, p = p - lr * b
///
/// State: "square_avg" (s), with momentum "momentum_buffer" (b), if centered "grad_avg" (a), each of local()'s shape.

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct RMSpropOptions {
  double lr = 1e-2;     ///< >= 0
  double alpha = 0.99;  ///< >= 0
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
};

class RMSprop final : public GroupOptimizer<RMSpropOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups, or options outside their ranges.
  RMSprop(const std::vector<Parameter>& parameters, const RMSpropOptions& options);
  RMSprop(const Module& module,
          const RMSpropOptions& options) = delete;  ///< RMSprop(module.parameters(), ...)
  explicit RMSprop(std::vector<Group> groups);

  std::string type_name() const override { return "RMSprop"; }

 private:
  void update(const std::vector<Parameter>& parameters) override;
  void check_options(const RMSpropOptions& options) const override;
  OptionList list_options(RMSpropOptions& options) const override;
  std::vector<std::string> state_names(const RMSpropOptions& options) const override;
};

}  // namespace tessera::nn::optim
