#pragma once

/// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023); per element:
///
///     g = +-grad                                                       minus to maximize
///     p = p - lr * (sign(beta1 m + (1 - beta1) g) + weight_decay * p)
///     m = beta2 m + (1 - beta2) g
///
/// Every element moves by lr, so lr is chosen 3 to 10 times smaller than for AdamW, and
/// weight_decay as much larger. State: "exp_avg" (m), of local()'s shape: half of Adam's. One
/// launch a step.

#include <array>

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::nn::optim {

struct LionOptions {
  double lr = 1e-4;                           ///< >= 0
  std::array<double, 2> betas = {0.9, 0.99};  ///< in [0, 1)
  double weight_decay = 0;
  bool maximize = false;
};

class Lion final : public GroupOptimizer<LionOptions> {
 public:
  /// Throw InvalidArgument for no parameters, one in two groups, or options outside their ranges.
  Lion(const std::vector<Parameter>& parameters, const LionOptions& options);
  Lion(const Module& module,
       const LionOptions& options) = delete;  ///< Lion(module.parameters(), ...)
  explicit Lion(std::vector<Group> groups);

  std::string type_name() const override { return "Lion"; }

 private:
  void update(const std::vector<Parameter>& parameters) override;
  bool applies_gradient_scale() const override { return true; }
  void check_options(const LionOptions& options) const override;
  OptionList list_options(LionOptions& options) const override;
  std::vector<std::string> state_names(const LionOptions& options) const override;
};

}  // namespace tessera::nn::optim
