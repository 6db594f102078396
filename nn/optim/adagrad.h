#pragma once

/// Adagrad with PyTorch's definition (Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011); per element, t
/// counting a parameter's updates from 1:
///
///     g = +-grad + weight_decay * p                                  minus to maximize
///     s = s + g^2,  s starts as initial_accumulator_value
///     p = p - lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps)
///
/// State: "sum" (s), of local()'s shape.

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct AdagradOptions {
  double lr = 1e-2;  ///< >= 0
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
};

class Adagrad final : public GroupOptimizer<AdagradOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups, or options outside their ranges.
  Adagrad(const std::vector<Parameter>& parameters, const AdagradOptions& options);
  Adagrad(const Module& module,
          const AdagradOptions& options) = delete;  ///< Adagrad(module.parameters(), ...)
  explicit Adagrad(std::vector<Group> groups);

  std::string type_name() const override { return "Adagrad"; }

 private:
  void update(const std::vector<Parameter>& parameters) override;
  void check_options(const AdagradOptions& options) const override;
  OptionList list_options(AdagradOptions& options) const override;
  std::vector<std::string> state_names(const AdagradOptions& options) const override;
};

}  // namespace tessera::nn::optim
